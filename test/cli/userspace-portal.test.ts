import { setImmediate } from 'node:timers/promises';
import t from 'tap';
import { watchSettings } from '../../src/cli/sinks/rule-portals.ts';
import { createKeeper, createPortal } from '../../src/cli/sinks/userspace-portal.ts';
import { systemExec, type Exec } from '../../src/portal/exec.ts';
import { captureLog } from '../support/captured-log.ts';
import { userspaceOptions } from '../support/command-lines.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { exits, type Reaction } from '../support/fake-exec.ts';
import { FakeIp } from '../support/fake-ip.ts';
import { FakeIptables } from '../support/fake-iptables.ts';
import { FakeNetsh } from '../support/fake-netsh.ts';
import { FakeNft } from '../support/fake-nft.ts';
import { wants } from '../support/portals.ts';

/** Makes the portal of a command line, on an nft and an iptables that are made up. */
async function make(flags: string, nft = new FakeNft(), iptables = new FakeIptables()) {
  const { log, lines } = await captureLog();
  const ip = new FakeIp();
  const exec: Exec = (command) => {
    if (command.file === 'ip') return ip.exec(command);
    return (command.file.includes('tables') ? iptables : nft).exec(command);
  };
  const portal = await createPortal(userspaceOptions(flags), log, { exec });
  return { portal, lines: lines(), nft, iptables, ip };
}

const WEB = [wants('a/a', 'clusterIP 10.0.0.1:80')];

function broken(reaction: Reaction): FakeNft {
  const nft = new FakeNft();
  nft.broken = reaction;
  return nft;
}

/** Without any program of iptables. */
function noIptables(): FakeIptables {
  const iptables = new FakeIptables();
  for (const name of ['iptables', 'iptables-nft', 'iptables-legacy']) iptables.missing.add(name);
  return iptables;
}

t.test('auto takes nftables where it works, changes nothing, and says so', async (t) => {
  const { portal, lines, nft } = await make('');
  t.equal(portal.kind, 'nftables');
  const reason = 'transparent needs the linux engine';
  t.match(lines, [{ level: 'info', msg: 'Chose --portal nftables', reason }]);
  t.same([...nft.tables.keys()], []);
  t.same(
    nft.commands.map(({ file, args }) => [file, ...args].join(' ')),
    ['nft -c -f -'],
  );
});

t.test('settings that turn against transparent later are logged, each once', async (t) => {
  const { log, lines } = await captureLog();
  const clock = new FakeClock();
  let found: string | undefined = 'one';
  const watch = watchSettings(log, () => found, clock);
  t.equal(lines().length, 1, 'at once, whether rules can be written or not');
  const closing = new AbortController();
  const ended = watch(closing.signal);
  for (const next of ['one', 'two', undefined, 'one']) {
    found = next;
    clock.advance(15_000);
    await setImmediate();
  }
  closing.abort();
  await ended;
  t.equal(clock.pending, 0);
  t.same(
    lines().map(({ reason }) => reason),
    ['one', 'two', 'one'],
  );
});

t.test('auto takes address where neither nftables nor iptables works, and says why', async (t) => {
  const cases = [
    [{ fails: 'missing' }, 'KPNG_PORTAL_TOOL_MISSING', /no nft on the PATH/],
    [exits('Error: Operation not permitted\n'), 'KPNG_PORTAL_PERMISSION', /CAP_NET_ADMIN/],
    [exits('Error: syntax error\n'), 'KPNG_PORTAL_UNSUPPORTED', /0\.9\.7/],
    [{ fails: 'timeout' }, 'KPNG_PORTAL_FAILED', /killed after/],
  ] as const;
  for (const [reaction, code, reason] of cases) {
    const { portal, lines } = await make('--portal auto', broken(reaction), noIptables());
    t.equal(portal.kind, 'address', code);
    t.match(lines, [{ level: 'info', msg: 'Chose --portal address', code, reason }]);
    t.match(lines, [{ reason: /there is no iptables on the PATH/ }]);
  }
  const iptables = new FakeIptables();
  iptables.broken = exits('Permission denied (you must be root)\n', 4);
  const { lines } = await make('', broken(exits('Error: Operation not permitted\n')), iptables);
  const why = /nftables can be used: .*CAP_NET_ADMIN.*iptables can be used: .*CAP_NET_ADMIN/;
  t.match(lines.at(-1), { msg: 'Chose --portal address', reason: why });
});

t.test('auto takes iptables where only that works, and leaves nothing behind', async (t) => {
  const { portal, lines, iptables } = await make('', broken({ fails: 'missing' }));
  t.equal(portal.kind, 'iptables');
  t.match(lines, [
    { msg: 'Found iptables', flavor: 'nft', version: '1.8.9', program: 'iptables-nft' },
    { msg: 'Chose --portal iptables', reason: /no nft on the PATH/ },
  ]);
  t.equal(lines.length, 2);
  for (const family of [4, 6] as const) t.notMatch(iptables.listing(family), /KPNG|KUBE/);
});

t.test('iptables writes for the families that it can, of the flavour asked for', async (t) => {
  const iptables = new FakeIptables();
  iptables.missing.add('ip6tables-legacy');
  const flags = '--portal iptables --iptables-flavor legacy --portal-chain-prefix MINE';
  const { portal, lines } = await make(flags, undefined, iptables);
  t.teardown(() => portal.close());
  t.match(lines, [
    { msg: 'Found iptables', flavor: 'legacy', reason: '--iptables-flavor selects it' },
    { level: 'warn', msg: 'There will be no packet rules for IPv6', reason: /ip6tables-legacy/ },
  ]);
  await portal.commit(new Map());
  t.match(iptables.listing(4, 'legacy'), /:MINE-PORTALS-HOST - /);
  t.notMatch(iptables.listing(6, 'legacy'), /MINE/);
  t.notMatch(iptables.listing(4, 'nft'), /MINE/);
});

t.test('an explicit iptables that does not work yet is retried', async (t) => {
  const iptables = noIptables();
  const { portal, lines } = await make('--portal iptables', undefined, iptables);
  t.teardown(() => portal.close());
  t.equal(portal.kind, 'iptables');
  t.same(lines, []);
  await t.rejects(portal.commit(new Map()), { code: 'KPNG_PORTAL_TOOL_MISSING' });
  iptables.missing.clear();
  await portal.commit(new Map());
  for (const family of [4, 6] as const) t.match(iptables.listing(family), /:KUBE-PORTALS-HOST - /);
});

t.test('a loopback address: auto takes address, others refuse', async (t) => {
  const { portal, lines } = await make('--bind-address 127.0.0.1');
  t.equal(portal.kind, 'address');
  t.match(lines, [{ code: 'KPNG_USAGE', reason: /loopback/ }]);
  for (const kind of ['nftables', 'iptables']) {
    await t.rejects(make(`--portal ${kind} --bind-address 127.0.0.1`), { code: 'KPNG_USAGE' });
  }
});

const onlyLinux = { skip: process.platform === 'linux' ? false : 'only on linux' };

t.test('rules and addresses go only on request', onlyLinux, async (t) => {
  for (const removes of [false, true]) {
    const { portal, nft } = await make('--portal nftables --portal-table mine');
    await portal.commit(new Map());
    t.same([...nft.tables.keys()], ['mine'], 'the name that was given');
    await portal.close(removes);
    t.equal(nft.tables.has('mine'), !removes);

    const { portal: address, ip } = await make('--portal-interface kpng0');
    address.plan(WEB, []);
    await address.prepare?.();
    await address.commit(new Map());
    t.same(ip.addresses('kpng0'), ['10.0.0.1/32']);
    await address.close(removes);
    t.equal(ip.links.has('kpng0'), !removes);
  }
  const { portal, nft } = await make('--portal nftables');
  await portal.commit(new Map());
  nft.broken = exits('Error: Operation not permitted\n');
  await t.rejects(portal.close(true), { code: 'KPNG_PORTAL_PERMISSION', message: /removing/ });
});

async function keeperOf(
  portalInterface: string | undefined,
  platform: NodeJS.Platform,
  env: Record<string, string> = {},
) {
  const { log, lines } = await captureLog();
  const options = { portalInterface };
  const keeper = await createKeeper(options, log, systemExec, { platform, env });
  await keeper?.close();
  return { keeper, lines: lines() };
}

t.test('addresses go to the named interface; Windows chooses one, and says why', async (t) => {
  for (const [name, platform] of [
    [undefined, 'linux'],
    [undefined, 'darwin'],
    ['', 'win32'],
  ] as const) {
    t.equal((await keeperOf(name, platform)).keeper, undefined, platform);
  }
  for (const [name, platform, message] of [
    ['kpng0', 'darwin', /works on Linux and Windows only/],
    ['a b', 'linux', /cannot be the name of a network interface/],
    ['a"b', 'win32', /cannot be the name/],
  ] as const) {
    await t.rejects(keeperOf(name, platform), { code: 'KPNG_USAGE', message });
  }
  const variable = { INTERFACE_TO_ADD_SERVICE_IP: 'eth0' };
  for (const [name, env, line] of [
    ['Ethernet 2', variable, { interface: 'Ethernet 2', reason: '--portal-interface names it' }],
    [undefined, variable, { interface: 'eth0', reason: 'INTERFACE_TO_ADD_SERVICE_IP names it' }],
    [undefined, {}, { interface: /./, reason: /./ }],
  ] as const) {
    const { keeper, lines } = await keeperOf(name, 'win32', env);
    t.ok(keeper);
    t.match(lines, [line]);
  }
});

t.test('--portal portproxy is for Windows, and says what it does not redirect', async (t) => {
  const options = userspaceOptions(
    '--portal portproxy --portal-interface Ethernet',
    'to-winuserspace',
  );
  t.match(options, { portal: 'portproxy', portalInterface: 'Ethernet' });
  const { log, messages } = await captureLog();
  const netsh = new FakeNetsh();
  const make = (platform: NodeJS.Platform) =>
    createPortal(options, log, { exec: netsh.exec, system: { platform, env: {} } });
  await t.rejects(make('linux'), { code: 'KPNG_USAGE', message: /for Windows only/ });
  const portal = await make('win32');
  t.equal(portal.kind, 'portproxy');
  t.match(messages().at(-1), /portproxy redirects TCP; UDP listens/);
  t.same(netsh.commands, [], 'nothing is run before the first sync');
  await portal.close();
});
