import { flowsCleared, flowsNotCleared } from '../../../src/portal/events.ts';
import { FakeExec, exits } from '../../support/fake-exec.ts';
import { listening } from '../../support/mailbox.ts';
import { type RigOptions, type NftablesRig, testRules } from '../../support/rule-rigs.ts';
import { wants } from '../../support/portals.ts';

/** A rig with one flow to 10.0.0.53:53, that keeps the commands of conntrack apart. */
function udpRig(make: (options: RigOptions) => NftablesRig, options: RigOptions = {}) {
  const ran: string[] = [];
  /** Where the flow goes. */
  const flow = { to: '', port: 0 };
  const rig: NftablesRig = make({
    ...options,
    exec: async (command) => {
      if (command.file !== 'conntrack') return rig.exec(command);
      ran.push(command.args.join(' '));
      const line = `src=1.1.1.1 dst=10.0.0.53 sport=1 dport=53 src=${flow.to} dst=1.1.1.1 sport=${flow.port} dport=1\n`;
      return { stdout: command.args.includes('-L') ? line : '', stderr: '' };
    },
  });
  /** What conntrack did since the last call. */
  const commands = (): string[] => ran.splice(0);
  return { rig, commands, flow };
}

const dns = wants('d/dns', 'clusterIP 10.0.0.53:53/UDP');

testRules(
  'UDP flows are cleared when a portal comes, moves, is refused, or goes',
  async (t, make) => {
    const { rig, commands, flow } = udpRig(make);
    await rig.sync([wants('d/web', 'clusterIP 10.0.0.1:80')]);
    t.strictSame(commands(), [], 'TCP needs none of it');
    const service = '-f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.53';
    const look = `-L ${service}`;
    const remove = (): string =>
      `-D ${service} --reply-src ${flow.to} --reply-port-src ${flow.port}`;
    Object.assign(flow, { to: '10.0.0.53', port: 53 });
    await rig.sync([dns]);
    t.strictSame(commands(), [look, remove()], 'it comes');
    Object.assign(flow, { to: '192.0.2.5', port: 40_002 });
    await rig.sync([{ ...dns, served: { internal: false, external: false } }]);
    t.strictSame(commands(), [look, remove()], 'it is refused');
    await rig.sync([dns]);
    t.strictSame(commands(), [look], 'it is served again, and the flow goes to the right port');
    await rig.sync([wants('e/dns', 'clusterIP 10.0.0.53:53/UDP')], ['d/dns']);
    t.strictSame(commands(), [look, remove()], 'it moves');
    flow.port = 40_003;
    await rig.sync([], ['e/dns']);
    t.strictSame(commands(), [look, remove()], 'it goes');
  },
);

testRules('after a start or a repair it looks which flows are wrong', async (t, make) => {
  const { rig, commands } = udpRig(make);
  await rig.sync([dns, wants('d/web', 'clusterIP fd00::1:80', 'nodePort 30000')]);
  t.strictSame(commands(), ['-L -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.53']);
  rig.nft.flush();
  await rig.look();
  t.strictSame(commands(), ['-L -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.53']);
});

testRules('flows go with the rules, unless another process uses them', async (t, make) => {
  for (const [removeOnClose, leaves, families] of [
    [false, false, []],
    [true, false, ['ipv4', 'ipv6']],
    [true, true, []],
  ] as const) {
    const { rig, commands } = udpRig(make, { removeOnClose });
    await rig.sync([dns, wants('d/six', 'clusterIP fd00::53:53/UDP', 'clusterIP 10.0.0.1:80')]);
    commands();
    if (leaves) rig.portal.leave?.();
    await rig.portal.close();
    t.strictSame(
      commands().map((line) => line.split(' ')[2]),
      families,
    );
    if (families.length === 0) t.match(rig.lands('10.0.0.1:80'), /proxy port/);
  }
});

testRules('the result is reported, and never fails a change', async (t, make) => {
  const told: string[] = [];
  listening(t, flowsCleared, ({ addresses }) => told.push(`cleared ${addresses}`));
  listening(t, flowsNotCleared, ({ error }) => told.push(error.code));
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
