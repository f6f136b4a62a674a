import { flowsCleared, flowsNotCleared } from '../../../src/portal/events.ts';
import type { Command } from '../../../src/portal/exec.ts';
import { FakeExec, exits } from '../../support/fake-exec.ts';
import { type RigOptions, type NftablesRig, testRules } from '../../support/rule-rigs.ts';
import { wants } from '../../support/portals.ts';

/** A rig that keeps the commands of conntrack apart. */
function udpRig(make: (options: RigOptions) => NftablesRig, options: RigOptions = {}) {
  const conntrack: Command[] = [];
  const rig: NftablesRig = make({
    ...options,
    exec: (command) => {
      if (command.file === 'conntrack') conntrack.push(command);
      return rig.exec(command);
    },
  });
  /** What was removed since the last call, without what all removals have in common. */
  const removed = (): string[] =>
    conntrack
      .splice(0)
      .flatMap(({ args, stdin }) =>
        stdin === undefined ? [args.join(' ')] : stdin.trim().split('\n'),
      )
      .map((line) => line.replace(/-D -f ipv[46] -p udp --orig-port-dst /, ''));
  return { rig, removed };
}

const dns = wants('d/dns', 'clusterIP 10.0.0.53:53/UDP');

testRules(
  'UDP flows are cleared when a portal comes, moves, is refused, or goes',
  async (t, make) => {
    const { rig, removed } = udpRig(make);
    await rig.sync([wants('d/web', 'clusterIP 10.0.0.1:80')]);
    t.strictSame(removed(), [], 'TCP needs none of it');
    await rig.sync([dns]);
    t.strictSame(removed(), ['53 --orig-dst 10.0.0.53 --reply-port-src 53'], 'it comes');
    await rig.sync([{ ...dns, served: { internal: false, external: false } }]);
    const former = '53 --orig-dst 10.0.0.53 --reply-src 192.0.2.5 --reply-port-src';
    t.strictSame(removed(), [`${former} 40002`], 'it is refused');
    await rig.sync([dns]);
    t.strictSame(removed(), ['53 --orig-dst 10.0.0.53 --reply-port-src 53'], 'it is served again');
    await rig.sync([wants('e/dns', 'clusterIP 10.0.0.53:53/UDP')], ['d/dns']);
    t.strictSame(removed(), [`${former} 40002`], 'it moves');
    await rig.sync([], ['e/dns']);
    t.strictSame(removed(), [`${former} 40003`], 'it goes');
  },
);

testRules('after a start or a repair it looks which flows are wrong', async (t, make) => {
  const { rig, removed } = udpRig(make);
  await rig.sync([dns, wants('d/web', 'clusterIP fd00::1:80', 'nodePort 30000')]);
  t.strictSame(removed(), ['-L -f ipv4 -p udp']);
  rig.nft.flush();
  await rig.look();
  t.strictSame(removed(), ['-L -f ipv4 -p udp']);
});

testRules('flows go with the rules when it ends and removes them', async (t, make) => {
  for (const removeOnClose of [false, true]) {
    const { rig, removed } = udpRig(make, { removeOnClose });
    await rig.sync([dns, wants('d/six', 'clusterIP fd00::53:53/UDP')]);
    removed();
    await rig.portal.close();
    const listed = ['-L -f ipv4 -p udp', '-L -f ipv6 -p udp'];
    t.strictSame(removed(), removeOnClose ? listed : []);
  }
});

testRules('neither rules nor flows go when another process uses them', async (t, make) => {
  const { rig, removed } = udpRig(make, { removeOnClose: true });
  await rig.sync([dns, wants('d/web', 'clusterIP 10.0.0.1:80')]);
  removed();
  rig.portal.leave?.();
  await rig.portal.close();
  t.strictSame(removed(), []);
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
});

testRules('the result is reported, and never fails a change', async (t, make) => {
  const told: string[] = [];
  const onCleared = ({ addresses }: { addresses: number }) => told.push(`cleared ${addresses}`);
  const onFailed = ({ error }: { error: { code: string } }) => told.push(error.code);
  flowsCleared.subscribe(onCleared);
  flowsNotCleared.subscribe(onFailed);
  t.teardown(() => {
    flowsCleared.unsubscribe(onCleared);
    flowsNotCleared.unsubscribe(onFailed);
  });
  let broken = false;
  const failing = new FakeExec(() => exits('Bad address\n'));
  const rig: NftablesRig = make({
    exec: (command) =>
      command.file === 'conntrack' && broken ? failing.exec(command) : rig.exec(command),
  });
  await rig.sync([dns]);
  broken = true;
  await rig.sync([wants('d/more', 'clusterIP 10.0.0.54:53/UDP')]);
  t.strictSame(told, ['cleared 1', 'KPNG_PORTAL_FAILED']);
  t.match(rig.lands('10.0.0.54:53/UDP'), /proxy port/);
});
