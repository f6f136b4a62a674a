import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir, uptime } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { cleanup } from '../../src/cli/cleanup.ts';
import { CLEANUP_FLAGS, type CleanupTargets } from '../../src/cli/flags/backend.ts';
import { pickValues } from '../../src/cli/flags/table.ts';
import type { Exec } from '../../src/portal/exec.ts';
import { LinuxInterface } from '../../src/portal/interface/linux.ts';
import { ledgerPath } from '../../src/portal/windows/ledger.ts';
import { AddressLedger } from '../../src/portal/windows/ledger.ts';
import { exits, FakeExec, type Reaction } from '../support/fake-exec.ts';
import { FakeIptables } from '../support/fake-iptables.ts';
import { FakeIp } from '../support/fake-ip.ts';
import { FakeNetsh } from '../support/fake-netsh.ts';
import { FakeNft } from '../support/fake-nft.ts';
import { IptablesRig, NftablesRig } from '../support/rule-rigs.ts';
import { wants } from '../support/portals.ts';

/** A host on which a proxy may have left things. */
class Host {
  readonly nft: FakeNft;
  readonly ip = new FakeIp();
  readonly iptables = new FakeIptables();
  readonly exec: Exec = (command) => {
    if (command.file === 'ip' && command.args.some((word) => /^(?:rule|route)$/.test(word))) {
      return Promise.resolve({ stdout: '', stderr: '' });
    }
    if (command.file === 'ip') return this.ip.exec(command);
    return /^ip6?tables/.test(command.file) ? this.iptables.exec(command) : this.nft.exec(command);
  };

  constructor(nft = new FakeNft()) {
    this.nft = nft;
  }

  async leaveAddresses(name: string): Promise<void> {
    const link = new LinuxInterface(name, this.exec);
    await link.open();
    await link.change(['10.0.0.1'], []);
  }

  clean(targets: Partial<CleanupTargets> = {}) {
    return clean(this.exec, { ...NAMES, ...targets });
  }
}

const NAMES: CleanupTargets = pickValues(CLEANUP_FLAGS, new Map());

async function clean(exec: Exec, targets: CleanupTargets, windows?: NodeJS.ProcessEnv) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const host = windows && ({ platform: 'win32', env: windows } as const);
  const code = await cleanup({ targets, stdout, stderr, exec, ...host });
  return { code, stdout: await text(stdout.end()), stderr: await text(stderr.end()) };
}

t.test('removes the named table; repeating it is fine', async (t) => {
  const rig = new NftablesRig({ table: 'other' });
  t.teardown(() => rig.portal.close());
  await rig.portal.commit(new Map());
  t.same([...rig.nft.tables.keys()], ['other']);
  const host = new Host(rig.nft);
  await host.clean();
  t.same([...rig.nft.tables.keys()], ['other'], 'not that one');
  for (const time of ['first', 'second']) {
    const { code, stdout, stderr } = await host.clean({ portalTable: 'other' });
    t.equal(code, 0, time);
    t.match(stdout, 'There is no nftables table inet other any more.\n');
    t.equal(stderr, '');
  }
  t.same([...rig.nft.tables.keys()], []);
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

t.test('removes the named iptables chains, of both flavours', async (t) => {
  const host = new Host();
  const before = ['nft', 'legacy'].map((flavor) => listings(host, flavor as 'nft'));
  for (const flavor of ['nft', 'legacy'] as const) {
    const rig = new IptablesRig({ exec: host.exec, prefix: 'MINE' }, flavor);
    await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80', 'nodePort 30000')]);
    await rig.portal.close();
  }
  t.match(listings(host, 'legacy'), /MINE-PORTALS-HOST/);
  await host.clean();
  t.match(listings(host, 'legacy'), /MINE-PORTALS-HOST/, 'not those');
  for (const time of ['first', 'second']) {
    t.match(await host.clean({ portalChainPrefix: 'MINE' }), { code: 0, stderr: '' }, time);
    for (const [index, flavor] of (['nft', 'legacy'] as const).entries()) {
      t.notMatch(listings(host, flavor), /MINE|KPNG/);
      t.notMatch(before[index], /MINE/);
    }
  }
});

function listings({ iptables }: Host, flavor: 'nft' | 'legacy'): string {
  return ([4, 6] as const).map((family) => iptables.listing(family, flavor)).join('');
}

t.test('refuses invalid names', async (t) => {
  const { code, stderr } = await new Host().clean({ portalInterface: 'a b' });
  t.equal(code, 1);
  t.match(stderr, /"a b" cannot be the name of a network interface.*\(KPNG_USAGE\)/);
});

const TABLE = `table inet kpng-userspace {
	map services4 {
		type ipv4_addr . inet_proto . inet_service : inet_service
		elements = { 10.0.0.1 . tcp . 80 : 40001,
			     10.0.0.53 . udp . 53 : 40002 }
	}
	set allowed4 {
		elements = { 10.0.0.99 . udp . 99 . 10.0.0.0/8 }
	}
	map node-ports6 {
		elements = { udp . 30053 : 40003 }
	}
	map services6 {
		elements = { fd00::53 . udp . 53 : 40004 }
	}
}
`;

/** A kernel that remembers a few UDP flows, and what was forgotten of them. */
function withFlows(conntrack: (args: string) => Reaction) {
  const removed: string[] = [];
  const fake = new FakeExec(({ file, args }) => {
    const line = args.join(' ');
    if (file === 'nft') return line.startsWith('list') ? { stdout: TABLE } : {};
    if (file === 'ip') return { stdout: '[]' };
    if (line.startsWith('-D')) removed.push(line);
    return conntrack(line);
  });
  return { exec: fake.exec, removed };
}

t.test('removes the UDP flows that the rules have redirected to proxy ports', async (t) => {
  const flow = (to: string, port: number, from: string, answers: number) =>
    `udp 17 29 src=192.0.2.9 dst=${to} sport=4000 dport=${port} src=${from} dst=192.0.2.9 sport=${answers} dport=4000\n`;
  const { exec, removed } = withFlows((line) => {
    if (line.startsWith('-L -f ipv4')) {
      const other = flow('10.0.0.99', 99, '192.0.2.5', 41_000);
      return { stdout: flow('10.0.0.53', 53, '192.0.2.5', 40_002) + other };
    }
    if (line.startsWith('-L -f ipv6')) {
      return {
        stdout: flow('fd00::53', 53, 'fd00::5', 40_004) + flow('::1', 30_053, '::1', 40_003),
      };
    }
    return {};
  });
  t.match(await clean(exec, NAMES), { code: 0, stderr: '' });
  t.same(
    removed
      .map((line) => line.replace(/.*--orig-port-dst (\d+) --orig-dst (\S+).*/, '$2 $1'))
      .sort(),
    ['10.0.0.53 53', '::1 30053', 'fd00::53 53'],
  );
});

t.test('without conntrack, removes the rest and reports what is left', async (t) => {
  const { exec } = withFlows(() => ({ fails: 'missing' }));
  const { code, stdout, stderr } = await clean(exec, NAMES);
  t.equal(code, 0);
  t.match(stdout, /no nftables table inet kpng-userspace any more/);
  t.match(stderr, /no conntrack on the PATH.*\(KPNG_PORTAL_TOOL_MISSING\)/);
});

t.test('on Windows, removes only what the interface’s ledger lists', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'kpng-cleanup-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const env = { ProgramData: folder, INTERFACE_TO_ADD_SERVICE_IP: 'Ethernet' };
  const netsh = new FakeNetsh();
  for (const address of ['10.96.0.1', '10.96.0.2']) {
    netsh.on('Ethernet').push({ address, prefix: 32, skipAsSource: true });
  }
  const bootedAt = () => Date.now() - uptime() * 1000;
  await new AddressLedger(ledgerPath('Ethernet', env), bootedAt).keep(['10.96.0.1']);
  const { code, stdout } = await clean(netsh.exec, NAMES, env);
  t.equal(code, 0);
  t.match(stdout, /no service addresses of ours on the interface Ethernet any more/);
  t.same(netsh.addresses('Ethernet'), ['10.96.0.2/32', '192.0.2.5/24']);
});
