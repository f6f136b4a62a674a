/** The portals that redirect all traffic of the node, so that the same tests show the same of each of them. */
import t, { type Test } from 'tap';
import { lab, type Lab } from './lab.ts';
import type { Machine } from './machine.ts';
import { Program, type ProgramOptions } from './program.ts';

export type KindName = 'nftables' | 'transparent' | 'iptables-nft' | 'iptables-legacy' | 'address';

/** One kind of portal, and how to look at it and disturb it from outside. */
interface Kind {
  readonly name: KindName;
  readonly flags: string;
  /** The same for a second program on the same node. */
  readonly otherFlags: string;
  /** What a TCP client of a service without endpoints gets. Default: ECONNREFUSED. */
  readonly refusals?: readonly string[];
  /** What a client gets that may not use the service: `silence`, or `refused`. */
  readonly dropped: 'silence' | 'refused';
  /** Whether a UDP client of a service without endpoints gets any response. */
  readonly refusesDatagrams: boolean;
  /** Shows all rules of the node, ours and others', or its addresses, without what changes by itself. */
  readonly list: string;
  /** Lines for a shell that each remove something of ours in another way. */
  readonly damage: readonly string[];
  /** Lines that each remove a single rule or element. */
  damageOne(here: Lab): Promise<readonly string[]>;
  /** Adds rules of another program. */
  readonly addOthers: string;
  /** What finds the rule for a service address, with its proxy port as the first group. */
  portalOf(address: string, protocol: 'tcp' | 'udp', port: number): RegExp;
}

const TABLE = 'inet kpng-userspace';

const NFTABLES: Kind = {
  name: 'nftables',
  flags: '--portal=nftables',
  otherFlags: '--portal=nftables --portal-table=other',
  dropped: 'silence',
  refusesDatagrams: true,
  list: 'nft list ruleset',
  damage: [
    'nft flush ruleset',
    `nft delete table ${TABLE}`,
    `nft flush table ${TABLE}`,
    `nft flush chain ${TABLE} nat-output`,
    `nft flush map ${TABLE} services4`,
  ],
  damageOne: (here) => damageNftables(here, 'destination4'),
  addOthers: `nft 'table ip nat {
    chain POSTROUTING { type nat hook postrouting priority srcnat; oifname "eth1" masquerade; }
  }
  table inet filter {
    chain input { type filter hook input priority filter; policy accept; tcp dport 22 accept; }
  }'`,
  portalOf: (address, protocol, port) =>
    new RegExp(String.raw`${escape(address)} \. ${protocol} \. ${port} : (\d+)`),
};

async function damageNftables(here: Lab, chain: string): Promise<string[]> {
  const rules = await here.sh(`nft -a list chain ${TABLE} ${chain}`);
  const [, handle] = /@services4.* # handle (\d+)/.exec(rules) ?? [];
  return [
    // First: a repair gives the rules other handles.
    `nft delete rule ${TABLE} ${chain} handle ${handle}`,
    ...[
      'services4 { 10.96.0.77 . tcp . 80 }',
      'services6 { fd96::10 . udp . 53 }',
      'node-ports4 { tcp . 30080 }',
    ].map((element) => `nft delete element ${TABLE} '${element}'`),
    `nft add element ${TABLE} empty4 '{ 10.96.0.77 . tcp . 80 }'`,
  ];
}

const TRANSPARENT: Kind = {
  ...NFTABLES,
  name: 'transparent',
  flags: '--portal=transparent',
  otherFlags:
    '--portal=transparent --portal-table=other --portal-mark=0x80 --portal-route-table=10041 --portal-rule-priority=41',
  list: '{ nft list ruleset; ip rule; ip -6 rule; }',
  damage: [
    ...NFTABLES.damage.filter((line) => !/nat-output|services4/.test(line)),
    `nft flush chain ${TABLE} transparent-prerouting`,
    `nft flush set ${TABLE} services4`,
  ],
  damageOne: async (here) => [
    ...(await damageNftables(here, 'arrival4')),
    'ip -6 rule delete priority 40',
    'ip route flush table 10040',
  ],
  portalOf: (address, protocol, port) =>
    new RegExp(String.raw`${escape(address)} \. ${protocol} \. ${port}`),
};

function iptables(flavor: 'nft' | 'legacy'): Kind {
  const v4 = `iptables-${flavor}`;
  const v6 = `ip6tables-${flavor}`;
  return {
    ...NFTABLES,
    name: `iptables-${flavor}`,
    flags: `--portal=iptables --iptables-flavor=${flavor}`,
    otherFlags: `--portal=iptables --iptables-flavor=${flavor} --portal-chain-prefix=OTHER`,
    list: `{ ${v4}-save; ${v6}-save; } | sed -E '/^#/d; s/\\[[0-9]+:[0-9]+\\]//'`,
    damage: [
      `${v4} -t nat -F`,
      `${v4} -F`,
      `${v6} -t nat -F`,
      `${v4} -t nat -F OUTPUT`,
      `${v4} -F INPUT`,
      `${v4} -t nat -F PREROUTING`,
      `${v6} -F FORWARD`,
      `${v4} -t nat -F KUBE-PORTALS-CONTAINER`,
      `${v4} -t nat -F KUBE-NODEPORT-HOST`,
    ],
    damageOne: async () => [
      `${v4} -t nat -D KUBE-PORTALS-CONTAINER 2`,
      `${v4} -t nat -D KUBE-NODEPORT-CONTAINER 1`,
      `${v6} -t nat -D KUBE-PORTALS-HOST 3`,
      `${v6} -D KUBE-NODEPORT-NON-LOCAL 3`,
      `${v6} -F KUBE-PROXY-PORTS`,
    ],
    // With a chain that is called like those of Kubernetes, and none of ours.
    addOthers: `for tool in ${v4}-restore ${v6}-restore; do $tool --noflush <<END
*nat
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -o eth1 -j MASQUERADE
COMMIT
*filter
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
COMMIT
END
done`,
    portalOf(address, protocol, port) {
      const place = `${escape(address)}/(?:32|128) -p ${protocol} .*--dport ${port}`;
      return new RegExp(String.raw`-d ${place} -j DNAT --to-destination \S+:(\d+)`);
    },
  };
}

/** Service addresses on the node itself, without any rule. */
const ADDRESS: Kind = {
  ...NFTABLES,
  name: 'address',
  flags: '--portal=address --portal-interface=kpng0',
  otherFlags: '--portal=address --portal-interface=kpng1',
  // Someone listens, who resets the connection as soon as it is there.
  refusals: ['ECONNRESET', 'closed'],
  dropped: 'refused',
  refusesDatagrams: false,
  list: '{ ip -o address show; ip -o link show; nft list ruleset; }',
  damage: [
    'ip address flush dev kpng0',
    'ip address delete 10.96.0.10/32 dev kpng0',
    'ip -6 address delete fd96::10/128 dev kpng0',
    'ip link set dev kpng0 down',
    'ip link delete dev kpng0',
  ],
  portalOf: (address) => new RegExp(`${escape(address)}/(?:32|128)`),
};

export const KINDS: Readonly<Record<KindName, Kind>> = {
  nftables: NFTABLES,
  transparent: TRANSPARENT,
  'iptables-nft': iptables('nft'),
  'iptables-legacy': iptables('legacy'),
  address: ADDRESS,
};

export const ALL = Object.keys(KINDS) as KindName[];
/**
 * The two flavours of iptables get the same rules in the same way, so only what depends on the kernel behind them is tested
 * with both.
 */
export const PORTALS = ALL.filter((name) => name !== 'iptables-legacy');
/** Those that write rules. */
export const RULES = PORTALS.filter((name) => name !== 'address');

export type KindLab = Awaited<ReturnType<typeof kindLab>>;

/** Defines a test for each kind of portal, or for some; it may need longer than the others. */
export function testEach(
  name: string,
  names: readonly KindName[],
  action: (t: Test, here: KindLab) => Promise<void>,
): void {
  for (const each of names) {
    t.test(`${each}: ${name}`, async (t) => action(t, await kindLab(t, each)));
  }
}

/** A network whose node has one kind of portal. It ends with the test. */
export async function kindLab(t: Test, name: KindName) {
  const here = await lab(t);
  const kind = KINDS[name];
  const { refusals = ['ECONNREFUSED'] } = kind;
  /** The name of the server that answered, or `refused` for what the portal does without endpoints. */
  const whoIs = (answer: string) =>
    refusals.includes(answer) ? 'refused' : (answer.split(' ')[0] ?? '');
  return {
    ...here,
    kind,
    /** Starts the program with that portal, or with its flags for a second one. */
    start({
      other = false,
      flags = '',
      ...options
    }: ProgramOptions & { readonly other?: boolean } = {}) {
      const all = `${other ? kind.otherFlags : kind.flags} ${flags}`;
      return new Program(t, here.network, { ...options, flags: all });
    },
    /** All rules of the node, or its addresses. */
    rules: () => here.sh(kind.list),
    whoIs,
    /** Checks that a client may not use a place. */
    async isDropped(machine: Machine, place: string, source?: string): Promise<void> {
      const expected = place.endsWith('/UDP') ? 'silence' : kind.dropped;
      const options = source === undefined ? {} : { source };
      const ask =
        expected === 'silence' ? machine.askInVain(place, options) : machine.ask(place, options);
      t.equal(whoIs(await ask), expected, `${machine.name} ${source ?? ''} at ${place}`);
    },
  };
}

function escape(text: string): string {
  return text.replaceAll(/[.[\]]/g, String.raw`\$&`);
}
