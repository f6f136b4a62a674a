/** The portals that write rules, so that the same tests show the same of each of them. */
import t, { type Test } from 'tap';
import type { KpngError } from '../../../src/errors.ts';
import type { Exec } from '../../../src/portal/exec.ts';
import { DEFAULT_PREFIX } from '../../../src/portal/iptables/chains.ts';
import { cleanUpIptables } from '../../../src/portal/iptables/left-over.ts';
import { cleanUpNftables } from '../../../src/portal/nftables/left-over.ts';
import { DEFAULT_ROUTE } from '../../../src/portal/nftables/policy-route.ts';
import { DEFAULT_TABLE } from '../../../src/portal/nftables/table-name.ts';
import { lab, type Lab } from './lab.ts';
import type { Network } from './network.ts';
import type { ProxyOptions } from './proxy-main.ts';
import type { Proxy } from './proxy.ts';

/** One kind of rules, and how to look at them and disturb them from outside. */
export interface RuleKind {
  readonly name: 'nftables' | 'transparent' | 'iptables-nft' | 'iptables-legacy';
  /** What the program gets, in one line. */
  readonly flags: string;
  /** All rules of the node, ours and others', without what changes by itself. */
  rules(network: Network): Promise<string>;
  /** Programs and arguments that remove rules of ours in different ways. */
  readonly damage: readonly (readonly string[])[];
  /** Programs and arguments that each remove a different single rule or element. */
  damageOne(exec: Exec): Promise<readonly (readonly string[])[]>;
  /** Settings of the node that it needs. */
  readonly sysctls: readonly string[];
  /** Removes all rules there are. */
  readonly removeAll: readonly (readonly string[])[];
  /** Adds rules of another program. */
  addOthers(exec: Exec): Promise<unknown>;
  /** What `cleanup` does; resolves with what is left. */
  cleanUp(exec: Exec, local: ReadonlySet<string>): Promise<KpngError | undefined>;
  /** What finds the rule for a service address, with its proxy port as the first group. */
  portalOf(address: string, protocol: 'tcp' | 'udp', port: number): RegExp;
}

const NFTABLES: RuleKind = {
  name: 'nftables',
  flags: '--portal nftables',
  sysctls: [],
  rules: (network) => network.inside('node', 'nft', ['list', 'ruleset']),
  damage: [
    'nft flush ruleset',
    'nft delete table inet kpng-userspace',
    'nft flush table inet kpng-userspace',
    'nft flush chain inet kpng-userspace nat-output',
    'nft flush map inet kpng-userspace services4',
  ].map((line) => line.split(' ')),
  damageOne: (exec) => damageNftables(exec, 'destination4'),
  removeAll: [['nft', 'flush', 'ruleset']],
  addOthers: (exec) => exec({ file: 'nft', args: ['-f', '-'], stdin: OTHERS_NFT }),
  cleanUp: (exec, local) => cleanUpNftables(exec, DEFAULT_TABLE, local),
  portalOf: (address, protocol, port) =>
    new RegExp(String.raw`${escape(address)} \. ${protocol} \. ${port} : (\d+)`),
};

/** The kernel forgets the socket of a packet that has passed the rules on a bridge. */
export const TRANSPARENT_SYSCTLS: readonly string[] = [
  'net.bridge.bridge-nf-call-iptables=0',
  'net.bridge.bridge-nf-call-ip6tables=0',
];

async function damageNftables(exec: Exec, name: string): Promise<string[][]> {
  const table = 'inet kpng-userspace';
  const chain = `${table} ${name}`;
  const { stdout } = await exec({
    file: 'nft',
    args: ['-a', 'list', 'chain', ...chain.split(' ')],
  });
  const [, handle] = /@services4.* # handle (\d+)/.exec(stdout) ?? [];
  return [
    // First: a repair gives the rules other handles.
    ['nft', `delete rule ${chain} handle ${handle}`],
    ...[
      'services4 { 10.96.0.77 . tcp . 80 }',
      'services6 { fd96::10 . udp . 53 }',
      'node-ports4 { tcp . 30080 }',
    ].map((element) => ['nft', `delete element ${table} ${element}`]),
    ['nft', `add element ${table} empty4 { 10.96.0.77 . tcp . 80 }`],
  ];
}

const TRANSPARENT: RuleKind = {
  ...NFTABLES,
  name: 'transparent',
  flags: '--portal transparent',
  sysctls: TRANSPARENT_SYSCTLS,
  async rules(network) {
    const policy = await network.inside('node', 'sh', ['-c', 'ip rule; ip -6 rule']);
    const marked = policy.split('\n').filter((line) => line.includes('fwmark'));
    return [await NFTABLES.rules(network), ...marked].join('\n');
  },
  damage: [
    ...NFTABLES.damage.filter((words) => !words.some((word) => /nat-output|services4/.test(word))),
    'nft flush chain inet kpng-userspace transparent-prerouting'.split(' '),
    'nft flush set inet kpng-userspace services4'.split(' '),
  ],
  async damageOne(exec) {
    return [
      ...(await damageNftables(exec, 'arrival4')),
      ['ip', '-6', 'rule', 'delete', 'priority', '40'],
      ['ip', 'route', 'flush', 'table', '10040'],
    ];
  },
  portalOf: (address, protocol, port) =>
    new RegExp(String.raw`${escape(address)} \. ${protocol} \. ${port}`),
  cleanUp: (exec, local) => cleanUpNftables(exec, DEFAULT_TABLE, local, DEFAULT_ROUTE),
};

function iptables(flavor: 'nft' | 'legacy'): RuleKind {
  const v4 = `iptables-${flavor}`;
  const v6 = `ip6tables-${flavor}`;
  return {
    name: `iptables-${flavor}`,
    flags: `--portal iptables --iptables-flavor ${flavor}`,
    sysctls: [],
    async rules(network) {
      const texts = await Promise.all(
        [`${v4}-save`, `${v6}-save`].map((file) => network.inside('node', file, [])),
      );
      return texts.join('').replaceAll(/^#.*\n|\[\d+:\d+\]/gm, '');
    },
    damage: [
      [v4, '-t', 'nat', '-F'],
      [v4, '-F'],
      [v6, '-t', 'nat', '-F'],
      [v4, '-t', 'nat', '-F', 'OUTPUT'],
      [v4, '-F', 'INPUT'],
      [v4, '-t', 'nat', '-F', 'PREROUTING'],
      [v6, '-F', 'FORWARD'],
      ...['PORTALS-CONTAINER', 'PORTALS-HOST', 'NODEPORT-CONTAINER', 'NODEPORT-HOST'].map(
        (chain) => [v4, '-t', 'nat', '-F', `KUBE-${chain}`],
      ),
      ...['PORTALS-REJECT', 'NODEPORT-REJECT', 'PROXY-PORTS', 'NODEPORT-NON-LOCAL'].map((chain) => [
        v6,
        '-F',
        `KUBE-${chain}`,
      ]),
    ],
    damageOne: async () => [
      [v4, '-t', 'nat', '-D', 'KUBE-PORTALS-CONTAINER', '2'],
      [v4, '-t', 'nat', '-D', 'KUBE-NODEPORT-CONTAINER', '1'],
      [v6, '-t', 'nat', '-D', 'KUBE-PORTALS-HOST', '3'],
      [v6, '-D', 'KUBE-NODEPORT-NON-LOCAL', '4'],
    ],
    removeAll: [v4, v6].flatMap((file) =>
      ['nat', 'filter'].flatMap((table) =>
        ['-F', '-X'].map((option) => [file, '-t', table, option]),
      ),
    ),
    async addOthers(exec) {
      for (const file of [v4, v6]) {
        await exec({ file: `${file}-restore`, args: ['--noflush'], stdin: OTHERS_IPTABLES });
      }
    },
    async cleanUp(exec, local) {
      const options = { prefix: DEFAULT_PREFIX, kubeProxy: false, local };
      return (await cleanUpIptables(exec, options)).flowsStay;
    },
    portalOf(address, protocol, port) {
      const place = `${escape(address)}/(?:32|128) -p ${protocol} .*--dport ${port}`;
      return new RegExp(String.raw`-d ${place} -j DNAT --to-destination \S+:(\d+)`);
    },
  };
}

const OTHERS_NFT = `table ip nat {
  chain POSTROUTING { type nat hook postrouting priority srcnat; oifname "eth1" masquerade; }
}
table inet filter {
  chain input { type filter hook input priority filter; policy accept; tcp dport 22 accept; }
}
`;

/** With a chain that is called like those of Kubernetes, and none of ours. */
const OTHERS_IPTABLES = `*nat
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -o eth1 -j MASQUERADE
COMMIT
*filter
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
COMMIT
`;

export const ALL_KINDS = ['nftables', 'transparent', 'iptables-nft', 'iptables-legacy'] as const;

export const RULE_KINDS: readonly RuleKind[] = [
  NFTABLES,
  TRANSPARENT,
  iptables('nft'),
  iptables('legacy'),
];

/** A network whose node has one kind of rules. */
export interface RuleLab extends Lab {
  readonly kind: RuleKind;
  /** Starts a proxy that redirects traffic with that kind of rules. */
  start(options?: ProxyOptions): Proxy;
  /** All rules of the node. */
  rules(): Promise<string>;
}

/**
 * Defines a test for each kind of rules, or for some. The two flavours of iptables get the same rules in the same way, so
 * only what depends on the kernel behind them is tested with both.
 */
export function testEachKind(
  name: string,
  action: (t: Test, here: RuleLab) => Promise<void>,
  names: readonly RuleKind['name'][] = ['nftables', 'transparent', 'iptables-nft'],
): void {
  for (const kind of RULE_KINDS.filter((each) => names.includes(each.name))) {
    t.test(`${kind.name}: ${name}`, async (t) => action(t, await ruleLab(t, kind)));
  }
}

/** Builds a network for a kind of rules. It ends with the test. */
export async function ruleLab(t: Test, kind: RuleKind): Promise<RuleLab> {
  const here = await lab(t);
  if (kind.sysctls.length > 0) {
    await here.network.inside('node', 'sysctl', ['-q', '-w', ...kind.sysctls]);
  }
  return {
    ...here,
    kind,
    start: (options) => here.start({ portal: kind.name, ...options }),
    rules: () => kind.rules(here.network),
  };
}

function escape(text: string): string {
  return text.replaceAll(/[.[\]]/g, String.raw`\$&`);
}
