import t from 'tap';
import { flowsCleared, flowsNotCleared } from '../../../src/portal/events.ts';
import {
  clearFlows,
  type FlowAddress,
  readFlows,
  staleAmong,
} from '../../../src/portal/rules/udp-flows.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';
import { listening } from '../../support/mailbox.ts';
import { wants } from '../../support/portals.ts';
import { type NftablesRig, type RigOptions, testRules } from '../../support/rule-rigs.ts';

const TARGETS = { 4: '192.0.2.5', 6: '2001:db8::5' };
const NOTHING_THERE = 'conntrack v1.4.7 (conntrack-tools): 0 flow entries have been deleted.\n';

/** As conntrack prints them: a flow to 10.0.0.1:53, one to a node port, and something else. */
const LIST = `udp      17 99 src=10.1.0.7 dst=10.0.0.1 sport=1000 dport=53 src=192.0.2.5 dst=10.1.0.7 sport=40001 dport=1000 [ASSURED] mark=0 use=1
udp      17 29 src=10.1.0.8 dst=10.0.0.2 sport=1000 dport=53 [UNREPLIED] src=10.0.0.2 dst=10.1.0.8 sport=53 dport=1000 mark=0 use=1
udp      17 29 src=10.1.0.8 dst=192.0.2.5 sport=1 dport=30053 packets=1 bytes=34 [UNREPLIED] src=192.0.2.5 dst=10.1.0.8 sport=40009 dport=1 packets=0 bytes=0 mark=0 use=1
unknown  2 590 src=10.1.0.1 dst=224.0.0.22 [UNREPLIED] src=224.0.0.22 dst=10.1.0.1 mark=0 use=1
`;

const LOCAL = new Set(['192.0.2.5']);

/** `10.0.0.1:53` or `30053`, with the destination of its flows. */
function place(text: string, proxyPort?: number): FlowAddress {
  const at = text.lastIndexOf(':');
  const address = at === -1 ? undefined : text.slice(0, at);
  const port = Number(text.slice(at + 1));
  return {
    family: address?.includes(':') === true ? 6 : 4,
    address,
    port,
    proxyPort,
  };
}

function many(count: number): FlowAddress[] {
  return Array.from({ length: count }, (_, n) => place(`10.0.${n >> 8}.${n & 255}:53`, 40_001));
}

t.test('a flow is stale when its destination is wrong', async (t) => {
  const stale = (...places: FlowAddress[]) =>
    staleAmong(places, readFlows(LIST), TARGETS[4], LOCAL);
  t.strictSame(stale(place('10.0.0.1:53', 40_001)), [], 'its destination is right');
  t.equal(stale(place('10.0.0.1:53', 40_002)).length, 1, 'to a previous proxy port');
  t.equal(stale(place('10.0.0.1:53')).length, 1, 'to a proxy port though there is none');
  t.equal(stale(place('10.0.0.2:53', 40_001)).length, 1, 'to no one');
  t.equal(stale(place('30053', 40_001)).length, 1, 'a node port');
  t.strictSame(stale(place('30053', 40_009)), []);
  t.strictSame(stale(place('10.0.0.3:53', 1), place('10.0.0.1:54', 1)), [], 'no flow at all');
  const one = [place('10.0.0.1:53', 40_001)];
  t.equal(staleAmong(one, readFlows(LIST), '192.0.2.6', LOCAL).length, 1, 'to a previous address');
  const nodePort = [place('30053', 40_001)];
  t.strictSame(staleAmong(nodePort, readFlows(LIST), TARGETS[4], new Set()), [], 'of another node');
});

t.test('only stale flows are removed, of few addresses or of many', async (t) => {
  const removed =
    'conntrack -D -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.2 ' +
    '--reply-src 10.0.0.2 --reply-port-src 53';
  const lists = () => new FakeExec(({ args }) => ({ stdout: args.includes('-L') ? LIST : '' }));
  const few = lists();
  const places = [place('10.0.0.2:53', 40_002), place('fd00::1:53', 1), place('30054', 1)];
  await clearFlows(few.exec, places, LOCAL, TARGETS);
  t.strictSame(
    new Set(few.lines),
    new Set([
      'conntrack -L -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.2',
      'conntrack -L -f ipv4 -p udp --orig-port-dst 30054',
      'conntrack -L -f ipv6 -p udp --orig-port-dst 53 --orig-dst fd00::1',
      removed,
    ]),
  );
  const exec = lists();
  await clearFlows(exec.exec, [...many(1000), place('fd00::1:53', 1)], LOCAL, TARGETS);
  t.strictSame(exec.lines, ['conntrack -L -f ipv4 -p udp', 'conntrack -L -f ipv6 -p udp', removed]);
});

t.test('nothing to remove is a success', async (t) => {
  const exec = new FakeExec(({ args }) =>
    args.includes('-L') ? { stdout: LIST } : exits(NOTHING_THERE),
  );
  await clearFlows(exec.exec, [place('10.0.0.1:53')], LOCAL, TARGETS);
  t.equal(exec.commands.length, 2);
});

t.test('the number of removals is limited, and the rest is reported', async (t) => {
  const flows = many(300).map(
    ({ address }) =>
      `udp 17 1 src=1.1.1.1 dst=${address} sport=1 dport=53 src=2.2.2.2 dst=1.1.1.1 sport=2 dport=1`,
  );
  const exec = new FakeExec(({ args }) => ({
    stdout: args.includes('-L') ? flows.join('\n') : '',
  }));
  t.match(await clearFlows(exec.exec, many(300), LOCAL, TARGETS), {
    code: 'KPNG_LIMIT_REACHED',
    message: /44 of 300 removals/,
  });
  t.equal(exec.lines.filter((line) => line.includes(' -D ')).length, 256);
});

t.test('reports why it cannot', async (t) => {
  const code = async (reaction: ReturnType<typeof exits>): Promise<unknown> =>
    (await clearFlows(new FakeExec(() => reaction).exec, [place('10.0.0.1:53')], LOCAL))?.code;
  t.equal(await code({ fails: 'missing' }), 'KPNG_PORTAL_TOOL_MISSING');
  t.equal(
    await code(
      exits('conntrack: Operation failed: sorry, you must be root or get CAP_NET_ADMIN\n'),
    ),
    'KPNG_PORTAL_PERMISSION',
  );
  t.equal(await code(exits('Bad address\n')), 'KPNG_PORTAL_FAILED');
});

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
    t.equal(rig.nft.tables.size, families.length === 0 ? 1 : 0);
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
