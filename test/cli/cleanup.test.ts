import { once } from 'node:events';
import { createServer } from 'node:net';
import { uptime } from 'node:os';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { cleanup } from '../../src/cli/cleanup.ts';
import { CLEANUP_FLAGS, type CleanupTargets } from '../../src/cli/flags/backend.ts';
import { removeStaleRules } from '../../src/cli/sinks/rule-portals.ts';
import type { Command, Exec } from '../../src/portal/exec.ts';
import type { Portal } from '../../src/portal/portal.ts';
import { LinuxInterface } from '../../src/portal/interface/linux.ts';
import { canaryAddress } from '../../src/portal/rules/canary.ts';
import { AddressLedger, ledgerFor } from '../../src/portal/windows/ledger.ts';
import { captureLog } from '../support/captured-log.ts';
import { defaultsOf, userspaceOptions } from '../support/command-lines.ts';
import { exits, FakeExec, type Reaction } from '../support/fake-exec.ts';
import { FakeIptables } from '../support/fake-iptables.ts';
import { FakeIp } from '../support/fake-ip.ts';
import { FakeNetsh } from '../support/fake-netsh.ts';
import { FakeNft } from '../support/fake-nft.ts';
import { IptablesRig, NftablesRig } from '../support/rule-rigs.ts';
import { wants } from '../support/portals.ts';
import { shortDir } from '../support/short-dir.ts';

/** The kind of a portal, and the flavor of iptables. */
type Current = readonly [kind: Portal['kind'], flavor?: 'nft' | 'legacy'];

const FLAVORS = ['nft', 'legacy'] as const;

/** A host on which a proxy may have left things. */
class Host {
  readonly nft: FakeNft;
  readonly ip = new FakeIp();
  readonly iptables = new FakeIptables();
  conntrack: (command: Command) => Reaction = () => ({});
  /** Whose rules the last removal has found in use. */
  others: readonly string[] = [];
  readonly exec: Exec = (command) => {
    if (command.file === 'ip' && command.args.some((word) => /^(?:rule|route)$/.test(word))) {
      return Promise.resolve({ stdout: '', stderr: '' });
    }
    if (command.file === 'ip') return this.ip.exec(command);
    if (command.file === 'conntrack') return new FakeExec(this.conntrack).exec(command);
    return /^ip6?tables/.test(command.file) ? this.iptables.exec(command) : this.nft.exec(command);
  };

  constructor(nft = new FakeNft()) {
    this.nft = nft;
  }

  /** Rules of every kind, as processes with different portals leave them. */
  async leaveRules(owner?: string): Promise<void> {
    const options = { exec: this.exec, ...(owner !== undefined && { owner }) };
    const chains = FLAVORS.map((flavor) => new IptablesRig(options, flavor));
    for (const rig of [new NftablesRig(options), ...chains]) {
      await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
      await rig.portal.close();
    }
  }

  /** What rules there are. */
  get there(): string[] {
    const flavors = FLAVORS.filter((each) => listings(this, each).includes('KUBE-'));
    return [...this.nft.tables.keys(), ...flavors];
  }

  /** Removes the rules of other portals, and returns the log. */
  async cleanOthers([kind, flavor]: Current, flags = '') {
    const { log, lines } = await captureLog();
    this.others = await removeStaleRules(kind, flavor, userspaceOptions(flags), log, this.exec);
    return lines();
  }

  async leaveAddresses(name: string): Promise<void> {
    const link = new LinuxInterface(name, this.exec);
    await link.open();
    await link.change('add', ['10.0.0.1']);
  }

  clean(targets: Partial<CleanupTargets> = {}) {
    return clean(this.exec, { ...NAMES, ...targets });
  }
}

const NAMES: CleanupTargets = defaultsOf(CLEANUP_FLAGS);

async function clean(exec: Exec, targets: CleanupTargets, windows?: NodeJS.ProcessEnv) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const streams = { stdout: stdout as unknown as NodeJS.WriteStream, stderr };
  const host = windows && ({ platform: 'win32', env: windows } as const);
  const code = await cleanup(targets, streams, exec, host);
  return { code, stdout: await text(stdout.end()), stderr: await text(stderr.end()) };
}

t.test('removes what has the given names; repeating it is fine', async (t) => {
  const rig = new NftablesRig({ table: 'other' });
  t.teardown(() => rig.portal.close());
  await rig.portal.commit(new Map());
  const host = new Host(rig.nft);
  for (const flavor of FLAVORS) {
    const chains = new IptablesRig({ exec: host.exec, prefix: 'MINE' }, flavor);
    await chains.sync([wants('a/a', 'clusterIP 10.0.0.1:80', 'nodePort 30000')]);
    await chains.portal.close();
  }
  await host.clean();
  t.same([...rig.nft.tables.keys()], ['other'], 'not that one');
  t.match(listings(host, 'legacy'), /MINE-PORTALS-HOST/, 'not those');
  for (const time of ['first', 'second']) {
    const outcome = await host.clean({ portalTable: 'other', portalChainPrefix: 'MINE' });
    const stdout = /no nftables table inet other any more\.\n/;
    t.match(outcome, { code: 0, stderr: '', stdout }, time);
    t.same([...rig.nft.tables.keys()], []);
    for (const flavor of FLAVORS) t.notMatch(listings(host, flavor), /MINE|KPNG/);
  }
});

t.test('removes service addresses, and the interfaces made for them', async (t) => {
  const host = new Host();
  for (const name of ['kpng0', 'kpng1', 'eth0']) await host.leaveAddresses(name);
  const one = await host.clean({ portalInterface: 'kpng1' });
  t.match(one, { code: 0, stdout: /service addresses on kpng1 any more/, stderr: '' });
  t.same([...host.ip.links.keys()], ['lo', 'eth0', 'kpng0']);
  const all = await host.clean();
  t.match(all, { code: 0, stdout: /service addresses on eth0, kpng0 any more/, stderr: '' });
  t.same([...host.ip.links.keys()], ['lo', 'eth0']);
  t.same(host.ip.addresses('eth0'), ['192.0.2.5/24', '2001:db8::5/64']);
  t.match(await host.clean(), { code: 0, stdout: /no service addresses on any interface\.\n/ });
});

t.test('reports what it could not remove, and removes the rest', async (t) => {
  const host = new Host();
  await host.leaveAddresses('kpng0');
  host.nft.broken = exits('Error: Operation not permitted\n');
  const { code, stdout, stderr } = await host.clean();
  t.equal(code, 1);
  t.equal(
    stdout,
    'There are no iptables chains KUBE-* of ours any more.\n' +
      'There are no service addresses on kpng0 any more.\n',
  );
  t.match(
    stderr,
    /^kpng-userspace: removing the nftables table inet kpng-userspace: .*CAP_NET_ADMIN.* \(KPNG_PORTAL_PERMISSION\)\n$/,
  );
});

t.test('a missing tool left nothing, unless all are missing', async (t) => {
  const host = new Host();
  host.nft.broken = { fails: 'missing' };
  const without = await host.clean();
  t.match(without, { code: 0, stderr: /no nft on the PATH.*\(KPNG_PORTAL_TOOL_MISSING\)\n$/ });
  host.ip.broken = { fails: 'missing' };
  for (const name of ['iptables', 'iptables-nft', 'iptables-legacy']) {
    t.match(await host.clean(), { code: 0 }, name);
    host.iptables.missing.add(name);
  }
  const all = /no nft .*\n.*no iptables.*\n.*no ip on the PATH/;
  t.match(await host.clean(), { code: 1, stdout: '', stderr: all });
});

function listings({ iptables }: Host, flavor: 'nft' | 'legacy'): string {
  return ([4, 6] as const).map((family) => iptables.listing(family, flavor)).join('');
}

t.test('refuses invalid names', async (t) => {
  const { code, stderr } = await new Host().clean({ portalInterface: 'a b' });
  t.equal(code, 1);
  t.match(stderr, /"a b" cannot be the name of a network interface.*\(KPNG_USAGE\)/);
});

t.test('removes the UDP flows that the rules have redirected, or reports them', async (t) => {
  const redirected = ['10.0.0.53 53', '::1 30053', 'fd00::53 53'];
  const flows = [...redirected, '10.0.0.99 99'].map((place) => {
    const [to, port] = place.split(' ');
    return `dst=${to} sport=4 dport=${port} src=${to} dst=1.1.1.1 sport=40001 dport=4\n`;
  });
  for (const isThere of [true, false]) {
    const rig = new NftablesRig();
    t.teardown(() => rig.portal.close());
    const udp = ['clusterIP 10.0.0.53:53/UDP', 'clusterIP fd00::53:53/UDP', 'nodePort 30053/UDP'];
    await rig.sync([wants('d/dns', ...udp, 'clusterIP 10.0.0.99:99')]);
    const host = new Host(rig.nft);
    const removed = new Set<string>();
    host.conntrack = ({ args }) => {
      if (!isThere) return { fails: 'missing' };
      const [, port, address] = /--orig-port-dst (\d+) --orig-dst (\S+)/.exec(args.join(' ')) ?? [];
      if (args[0] === '-D') removed.add(`${address} ${port}`);
      const listed = flows.filter((each) => each.includes('::') === args.includes('ipv6'));
      return { stdout: listed.join('') };
    };
    const { code, stdout, stderr } = await host.clean();
    t.equal(code, 0);
    t.match(stdout, /no nftables table inet kpng-userspace any more/);
    t.same([...removed].sort(), isThere ? redirected : []);
    t.match(stderr, isThere ? /^$/ : /no conntrack on the PATH.*\(KPNG_PORTAL_TOOL_MISSING\)/);
  }
});

t.test('on Windows, removes only what the interface’s ledger lists', async (t) => {
  const env = { ProgramData: shortDir(t), INTERFACE_TO_ADD_SERVICE_IP: 'Ethernet' };
  const netsh = new FakeNetsh();
  for (const address of ['10.96.0.1', '10.96.0.2']) {
    netsh.on('Ethernet').push({ address, prefix: 32, skipAsSource: true });
  }
  const bootedAt = () => Date.now() - uptime() * 1000;
  await new AddressLedger(ledgerFor(env, 'Ethernet').path, bootedAt).keep(['10.96.0.1']);
  const { code, stdout } = await clean(netsh.exec, NAMES, env);
  t.equal(code, 0);
  t.match(stdout, /no service addresses of ours on the interface Ethernet any more/);
  t.same(netsh.addresses('Ethernet'), ['10.96.0.2/32', '192.0.2.5/24']);
});

t.test('removes what a previous process left with another portal', async (t) => {
  const cases: [Current, string][] = [
    [['nftables'], 'kpng-userspace'],
    [['iptables', 'nft'], 'nft'],
    [['iptables', 'legacy'], 'legacy'],
  ];
  for (const [current, kept] of cases) {
    const host = new Host();
    await host.leaveRules();
    t.same(host.there, ['kpng-userspace', 'nft', 'legacy']);
    const lines = await host.cleanOthers(current);
    t.same(host.there, [kept]);
    t.equal(lines.length, 2);
    t.match(lines, [{ level: 'info', msg: 'Removed stale rules of a previous process' }]);
    t.same(await host.cleanOthers(current), [], 'once');
  }
  // Rules with other names stay.
  const host = new Host();
  await host.leaveRules();
  const names = '--portal-table mine --portal-chain-prefix MINE';
  t.same(await host.cleanOthers(['nftables'], names), []);
  t.same(await host.cleanOthers(['iptables', 'nft'], names), []);
  t.equal(host.there.length, 3);
});

const onlyLinux = { skip: process.platform !== 'linux' && 'only on linux' };

t.test('rules of a process that runs stay, and it is named', onlyLinux, async (t) => {
  const owner = 'abcdefabcdef';
  const { host: address, port } = canaryAddress(owner, 4);
  // Its canary, as if the rules redirected there.
  const server = createServer((socket) => {
    socket.on('error', () => undefined).end('kpng-userspace 4711\n');
  });
  server.listen(port, address);
  await once(server, 'listening');
  t.teardown(() => server.close());
  const host = new Host();
  await host.leaveRules(owner);
  t.same(await host.cleanOthers(['iptables', 'nft']), []);
  const legacy = 'process 4711 writes the chains KUBE-* of iptables-legacy';
  t.strictSame(host.others, ['process 4711 writes the nftables table inet kpng-userspace', legacy]);
  t.same(await host.cleanOthers(['nftables']), []);
  t.strictSame(host.others, [legacy.replace('legacy', 'nft'), legacy]);
  t.equal(host.there.length, 3);
  server.close();
  await once(server, 'close');
  await host.cleanOthers(['nftables']);
  t.strictSame(host.others, []);
  t.same(host.there, ['kpng-userspace'], 'once it has ended, they go');
});

t.test('failed removals are reported, missing programs are not', async (t) => {
  const host = new Host();
  await host.leaveRules();
  host.iptables.broken = exits('Permission denied (you must be root)\n', 4);
  const lines = await host.cleanOthers(['nftables']);
  t.match(lines, [
    { level: 'warn', what: /iptables-nft/, code: 'KPNG_PORTAL_PERMISSION' },
    { level: 'warn', what: /iptables-legacy/ },
  ]);
  host.nft.broken = { fails: 'missing' };
  for (const name of ['iptables', 'iptables-nft', 'iptables-legacy'])
    host.iptables.missing.add(name);
  t.same(await host.cleanOthers(['iptables', 'nft']), []);
});
