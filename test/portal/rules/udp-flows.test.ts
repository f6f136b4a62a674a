import t from 'tap';
import { FLOW_WAIT_MS } from '../../../src/portal/bounds.ts';
import { flowsCleared, flowsNotCleared } from '../../../src/portal/events.ts';
import type { Exec } from '../../../src/portal/exec.ts';
import { clearFlows } from '../../../src/portal/rules/udp-flows.ts';
import type { HostAddress } from '../../../src/util/host-addresses.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';
import { listening } from '../../support/sockets.ts';
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

const HOST: readonly HostAddress[] = [{ address: '192.0.2.5', loopback: false }];

function many(count: number): Map<string, string> {
  return new Map(
    Array.from({ length: count }, (_, n) => [`4 10.0.${n >> 8}.${n & 255} 53`, '40001']),
  );
}

/** What conntrack does for these portals, if it lists this. */
async function cleared(
  ports: Iterable<[string, string]>,
  listed = LIST,
  host = HOST,
  targets = TARGETS,
) {
  const exec = new FakeExec(({ args }) =>
    // Flows that are gone by the time of their removal are no problem.
    args.includes('-L') ? { stdout: listed } : exits(NOTHING_THERE),
  );
  const error = await clearFlows(exec.exec, new Map(ports), host, targets);
  return { lines: exec.lines, error, removed: exec.lines.filter((line) => line.includes(' -D ')) };
}

t.test('a flow is stale when its destination is wrong', async (t) => {
  const web = '4 10.0.0.1 53';
  const moved = { ...TARGETS, 4: '192.0.2.6' };
  for (const [why, key, port, count, host = HOST, targets = TARGETS] of [
    ['its destination is right', web, '40001', 0],
    ['to a previous proxy port', web, '40002', 1],
    ['to a proxy port though there is none', web, '', 1],
    ['to no one', '4 10.0.0.2 53', '40001', 1],
    ['a node port', '4 node 30053', '40001', 1],
    ['a node port whose destination is right', '4 node 30053', '40009', 0],
    ['no flow at all', '4 10.0.0.3 53', '1', 0],
    ['to a previous address', web, '40001', 1, HOST, moved],
    ['a node port of another node', '4 node 30053', '40001', 0, []],
  ] as const) {
    const { removed, error } = await cleared([[key, port]], LIST, host, targets);
    t.equal(removed.length, count, why);
    t.equal(error, undefined);
  }
});

t.test('only stale flows are removed, of few addresses or of many', async (t) => {
  const wrong =
    'conntrack -D -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.2 ' +
    '--reply-src 10.0.0.2 --reply-port-src 53';
  const few = await cleared([
    ['4 10.0.0.2 53', '40002'],
    ['6 fd00::1 53', '1'],
    ['4 node 30054', '1'],
  ]);
  t.same(few.lines.toSorted(), [
    wrong,
    'conntrack -L -f ipv4 -p udp --orig-port-dst 30054',
    'conntrack -L -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.2',
    'conntrack -L -f ipv6 -p udp --orig-port-dst 53 --orig-dst fd00::1',
  ]);
  const { lines } = await cleared([...many(1000), ['6 fd00::1 53', '1']]);
  t.same(lines.toSorted(), [wrong, 'conntrack -L -f ipv4 -p udp', 'conntrack -L -f ipv6 -p udp']);
});

t.test('the number of removals is limited, and the rest is reported', async (t) => {
  const flows = Array.from(many(300).keys(), (key) => key.split(' ')[1]).map(
    (address) =>
      `udp 17 1 src=1.1.1.1 dst=${address} sport=1 dport=53 src=2.2.2.2 dst=1.1.1.1 sport=2 dport=1`,
  );
  const { error, removed } = await cleared(many(300), flows.join('\n'));
  t.match(error, { code: 'KPNG_LIMIT_REACHED', message: /44 of 300 removals/ });
  t.equal(removed.length, 256);
});

t.test('reports why it cannot', async (t) => {
  for (const [reaction, code] of [
    [{ fails: 'missing' }, 'KPNG_PORTAL_TOOL_MISSING'],
    [exits('conntrack: sorry, you must be root or get CAP_NET_ADMIN\n'), 'KPNG_PORTAL_PERMISSION'],
    [exits('Bad address\n'), 'KPNG_PORTAL_FAILED'],
  ] as const) {
    const { exec } = new FakeExec(() => reaction);
    t.match(await clearFlows(exec, new Map([['4 10.0.0.1 53', '']])), { code });
  }
});

const dns = wants('d/dns', 'clusterIP 10.0.0.53:53/UDP');
const SERVICE = '-f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.53';

/** A rig whose conntrack lists one flow to 10.0.0.53:53. */
function udpRig(make: (options: RigOptions) => NftablesRig, options: RigOptions = {}) {
  const ran: string[] = [];
  const rig: NftablesRig = make({
    ...options,
    exec: async (command) => {
      if (command.file !== 'conntrack') return rig.exec(command);
      ran.push(command.args.join(' '));
      const line = `src=1.1.1.1 dst=10.0.0.53 sport=1 dport=53 src=${flow.to} dst=1.1.1.1 sport=${flow.port} dport=1\n`;
      return { stdout: command.args.includes('-L') ? line : '', stderr: '' };
    },
  });
  /** Where it goes. */
  const flow = { to: '192.0.2.5', port: 40_001 };
  /** What conntrack did since the last call. */
  return { rig, flow, commands: () => ran.splice(0) };
}

testRules('flows are cleared if a portal comes, moves, is refused, or goes', async (t, make) => {
  const { rig, commands, flow } = udpRig(make);
  await rig.sync([wants('d/web', 'clusterIP 10.0.0.1:80')]);
  t.strictSame(commands(), [], 'TCP needs none of it');
  const own = ['192.0.2.5', 40_002] as const;
  for (const [what, [to, port], set, remove = []] of [
    ['it comes', ['10.0.0.53', 53], [dns]],
    ['it is refused', own, [{ ...dns, served: { internal: false, external: false } }]],
    ['it is served again, and the flow goes to the right port', own, [dns]],
    ['it moves', own, [wants('e/dns', 'clusterIP 10.0.0.53:53/UDP')], ['d/dns']],
    ['it goes', ['192.0.2.5', 40_003], [], ['e/dns']],
  ] as const) {
    Object.assign(flow, { to, port });
    await rig.sync(set, remove);
    const removal = `-D ${SERVICE} --reply-src ${to} --reply-port-src ${port}`;
    const isRight = what.startsWith('it is served');
    t.strictSame(commands(), [`-L ${SERVICE}`, ...(isRight ? [] : [removal])], what);
  }
});

testRules('after a start or a repair it looks which flows are wrong', async (t, make) => {
  const { rig, commands } = udpRig(make);
  await rig.sync([dns, wants('d/web', 'clusterIP fd00::1:80', 'nodePort 30000')]);
  t.strictSame(commands(), [`-L ${SERVICE}`]);
  rig.nft.tables.clear();
  await rig.look();
  const halfOpen = ['ipv4', 'ipv6'].map((family) => `-L -f ${family} -p tcp --state SYN_SENT`);
  t.strictSame(commands(), [...halfOpen, `-L ${SERVICE}`]);
});

testRules('flows go with the rules, if these are removed', async (t, make) => {
  for (const removes of [false, true]) {
    const { rig, commands } = udpRig(make);
    await rig.sync([dns, wants('d/web', 'clusterIP 10.0.0.1:80')]);
    commands();
    await rig.portal.close(removes);
    t.match(commands().join('\n'), removes ? /^-L .*\n-D .*$/ : /^$/);
    t.equal(rig.nft.tables.size, removes ? 0 : 1);
  }
});

testRules('the result is reported, and neither fails nor delays a change', async (t, make) => {
  const told: string[] = [];
  listening(t, flowsCleared, ({ addresses }) => told.push(`cleared ${addresses}`));
  listening(t, flowsNotCleared, ({ error }) => told.push(error.code));
  const failing = new FakeExec(() => exits('Bad address\n'));
  let conntrack: Exec = async () => ({ stdout: '', stderr: '' });
  const rig: NftablesRig = make({
    exec: (command) => (command.file === 'conntrack' ? conntrack : rig.exec)(command),
  });
  /** One more service, whose rules are written whatever conntrack does. */
  const sync = async (host: number): Promise<void> => {
    const synced = rig.sync([wants(`d/${host}`, `clusterIP 10.0.0.${host}:53/UDP`)]);
    await rig.look(0);
    rig.clock.advance(FLOW_WAIT_MS);
    await synced;
    t.match(rig.lands(`10.0.0.${host}:53/UDP`), /proxy port/);
  };
  await sync(53);
  conntrack = failing.exec;
  await sync(54);
  t.strictSame(told.splice(0), ['cleared 1', 'KPNG_PORTAL_FAILED']);
  const listed = Promise.withResolvers<void>();
  conntrack = async () => {
    await listed.promise;
    return { stdout: '', stderr: '' };
  };
  for (const host of [55, 56, 57]) await sync(host);
  t.strictSame(told, []);
  const closed = rig.portal.close();
  listed.resolve();
  await closed;
  t.strictSame(told, ['cleared 1', 'cleared 2'], 'those that waited are cleared together');
});
