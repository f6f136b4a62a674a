/** What `--portal auto` takes on a node, and that nothing else is left. */
import t, { type Test } from 'tap';
import { eventually } from '../support/until.ts';
import { kindLab, type KindLab } from './support/kinds.ts';
import { onNode, PRELOADED, Program } from './support/program.ts';
import { CLUSTER, OUTSIDE, service } from './support/services.ts';

const STATE = { state: [service()] };
const PLACES = [`${CLUSTER.v4}:80`, `[${CLUSTER.v6}]:80`, ...OUTSIDE];

/** What a portal or a trial has left on the node, in words. */
async function traces(here: KindLab): Promise<string[]> {
  const rules = await here.rules();
  const tables = await here.sh('ip route show table all');
  return [
    ...(rules.match(/^table inet kpng\S*/gm) ?? []),
    ...(rules.includes('lookup 10040') ? ['rule'] : []),
    ...(tables.includes('table 10040') ? ['route'] : []),
  ];
}

const OF_NFTABLES = ['table inet kpng-userspace'];
const OF_TRANSPARENT = [...OF_NFTABLES, 'rule', 'route'];

/** The portal that is chosen and serves, and why. */
async function chosen(t: Test, here: KindLab, flags = '') {
  const options = { flags: `--portal auto ${flags}`, before: PRELOADED, ...STATE };
  const program = new Program(t, here.network, options);
  await program.ready();
  for (const place of PLACES) t.match(await here.client.ask(place), /^pod/, place);
  const line = program.log.find(({ msg }) => msg.startsWith('Chose --portal'));
  return { program, line };
}

function nft(here: KindLab, script: string): Promise<unknown> {
  return here.sh('nft -f -', script);
}

const CHAIN = 'type filter hook input priority 0; policy';

t.test('auto takes transparent where a trial arrives, and the trial leaves nothing', async (t) => {
  const here = await kindLab(t, 'transparent');
  // As kubelet has it, and what cannot drop anything.
  await nft(here, 'table inet trials { chain KUBE-FIREWALL { ip daddr 127.0.0.1 drop; }; }');
  const rules = `iif lo accept; tcp dport 22 accept; jump KUBE-FIREWALL;`;
  await nft(here, `table inet trials { chain in { ${CHAIN} accept; ${rules} }; }`);
  const socket = `/tmp/kpng-auto-${process.pid}.sock`;
  const { line } = await chosen(t, here, `--admin-socket ${socket}`);
  t.match(line, {
    msg: 'Chose --portal transparent',
    reason: 'a trial connection arrived in IPv4 and IPv6',
  });
  t.same(await traces(here), OF_TRANSPARENT);
  const status = await onNode(t, here.network, ['status', '--socket', socket]).exited;
  t.match(status, { code: 0, stdout: /^engine +linux, portal transparent$/m });
});

/** Why nftables is taken instead, and the part of its log line. */
const REASONS: Readonly<Record<string, readonly [string, RegExp, string?]>> = {
  'an interface that checks sources by mark': [
    'sysctl -qw net.ipv4.conf.eth0.src_valid_mark=1',
    /net\.ipv4\.conf\.eth0\.src_valid_mark/,
  ],
  'a firewall that drops': [
    `nft 'table inet fw { chain in { ${CHAIN} drop; iif lo accept; ct state established accept; ct status dnat accept; meta l4proto ipv6-icmp accept; }; }'`,
    /^chain in of the nftables table inet fw may drop/,
  ],
  'a firewall of iptables': [
    'iptables-legacy -A INPUT -p tcp --dport 23 -j DROP',
    /^iptables-legacy may drop/,
  ],
  'a mark in use': [
    'ip rule add fwmark 0x1c0/0x1c0 lookup main priority 41',
    /trial of transparent failed: the routing rule 41 of another program/,
  ],
  'a routing rule for packets from outside': [
    'ip route add default via 192.0.3.1 table 10041; ip rule add iif eth0 lookup 10041 priority 40',
    /trial of transparent failed: the routing rule 40 of another program comes before 40/,
  ],
  'a program that replaces marks': [
    `nft 'table inet fw { chain pre { type filter hook prerouting priority -140; iifname "eth0" meta mark set ct mark; }; }'`,
    /^chain pre of the nftables table inet fw may replace the mark/,
  ],
  'packets that do not arrive': [
    `nft 'table inet fw { chain out { type filter hook output priority 0; meta mark 0x40 tcp dport 9 drop; }; }'`,
    /trial of transparent failed: a connection to \S+: no answer/,
  ],
  'a DNS server on every address': ['', /is bound to UDP port 53 on every address/],
  'another proxy': [
    "nft 'table inet other { chain transparent-prerouting { }; }'",
    /another proxy uses transparent \(table inet other\)/,
  ],
  'proxy ports that are asked for': ['', /--port-range/, '--port-range 36000-37000'],
};

for (const [name, [command, reason, flags]] of Object.entries(REASONS)) {
  t.test(`auto takes nftables because of ${name}`, async (t) => {
    const here = await kindLab(t, 'transparent');
    if (name.includes('DNS')) await here.node.serve('0.0.0.0:53/UDP', 'dns');
    await here.sh(command);
    const { line } = await chosen(t, here, flags);
    t.match(line, { msg: 'Chose --portal nftables', reason });
    t.same(await traces(here), OF_NFTABLES);
  });
}

t.test('what a killed trial leaves is removed by the next start, or by cleanup', async (t) => {
  const here = await kindLab(t, 'transparent');
  const stuck = 'chain out { type filter hook output priority 0; tcp dport 9 drop; }';
  for (const way of ['start', 'cleanup']) {
    await nft(here, `table inet fw { ${stuck}; }`);
    const options = { flags: '--portal=auto', before: PRELOADED, ...STATE };
    const first = new Program(t, here.network, options);
    // At once: the trial ends by itself.
    const isTried = 'nft list table inet kpng-userspace-trial >/dev/null 2>&1';
    await here.sh(`until ${isTried}; do :; done; kill -KILL ${first.pid}`);
    await first.exited;
    t.same(await traces(here), ['table inet kpng-userspace-trial', 'rule', 'route']);
    if (way === 'cleanup') {
      t.match(await onNode(t, here.network, ['cleanup']).exited, { code: 0 });
      t.same(await traces(here), []);
    } else {
      const next = new Program(t, here.network, { flags: '--portal=nftables', ...STATE });
      await next.line('Removed stale rules of a previous process', {
        what: 'the routing rule of mark 0x40',
      });
      t.same(await traces(here), OF_NFTABLES);
      await next.end('SIGKILL');
    }
    await nft(here, 'flush ruleset');
  }
});

t.test('a start with another outcome replaces the portal that was there', async (t) => {
  const here = await kindLab(t, 'transparent');
  for (const [value, portal, left] of [
    [1, 'nftables', OF_NFTABLES],
    [0, 'transparent', OF_TRANSPARENT],
    [1, 'nftables', OF_NFTABLES],
  ] as const) {
    await here.sh(`sysctl -qw net.ipv4.conf.eth0.src_valid_mark=${value}`);
    const { program, line } = await chosen(t, here);
    t.equal(line?.msg, `Chose --portal ${portal}`, String(line?.['reason']));
    t.ok(await eventually(async () => (await traces(here)).length === left.length));
    t.same(await traces(here), left);
    await program.end('SIGKILL');
  }
});
