/**
 * Our chains, named as in kube-proxy's userspace mode, and the jumps to them, as text: scripts for
 * `iptables-restore --noflush`, each for one family, and what iptables lists.
 */
import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import type { Element, ElementChange, Elements, RuleConfig } from '../rules/backend.ts';

export interface RuleContext {
  readonly prefix: string;
  readonly family: Family;
  readonly config: RuleConfig;
}

export const DEFAULT_PREFIX = 'KUBE';

/** Throws KPNG_USAGE for an invalid chain prefix: chain names have at most 28 characters. */
export function checkPrefix(prefix: string): void {
  if (/^[a-z][a-z0-9]{0,8}$/i.test(prefix)) return;
  throw new KpngError(
    'KPNG_USAGE',
    `${JSON.stringify(prefix)} cannot be what iptables chains begin with: a letter and up to 8 letters and digits`,
  );
}

type Table = 'filter' | 'nat';

/** In the order in which they are written. */
const TABLES: readonly Table[] = ['filter', 'nat'];

/**
 * Slots for service rules, in their order within a chain, with the chain's name without the prefix. `at`: whether new rules
 * are inserted before existing ones or appended. No packet matches two rules of one slot.
 * - `…-except`: rejected service addresses, which must not match a node port of the same number
 * - `refuse-some`: rejected clients of a guarded service address without endpoints
 * - `refuse`: other rejected service addresses, and all clients that a guarded one does not allow
 */
export const SLOTS = {
  'portals-container': { table: 'nat', chain: 'PORTALS-CONTAINER', at: 'last' },
  'portals-host': { table: 'nat', chain: 'PORTALS-HOST', at: 'last' },
  'nodeport-container-except': { table: 'nat', chain: 'NODEPORT-CONTAINER', at: 'first' },
  'nodeport-container': { table: 'nat', chain: 'NODEPORT-CONTAINER', at: 'last' },
  'nodeport-host-except': { table: 'nat', chain: 'NODEPORT-HOST', at: 'first' },
  'nodeport-host': { table: 'nat', chain: 'NODEPORT-HOST', at: 'last' },
  'non-local': { table: 'filter', chain: 'NODEPORT-NON-LOCAL', at: 'last' },
  'proxy-ports': { table: 'filter', chain: 'PROXY-PORTS', at: 'last' },
  'refuse-some': { table: 'filter', chain: 'PORTALS-REJECT', at: 'first' },
  refuse: { table: 'filter', chain: 'PORTALS-REJECT', at: 'last' },
  'nodeport-refuse': { table: 'filter', chain: 'NODEPORT-REJECT', at: 'last' },
} as const satisfies Record<string, { table: Table; chain: string; at: 'first' | 'last' }>;

export type Slot = keyof typeof SLOTS;

export const SLOT_ORDER = Object.keys(SLOTS) as readonly Slot[];

/** The name of the set of a slot's rules in a family: the key of a rule is its match, the value a proxy port or target. */
export function slotName(slot: Slot, family: Family): string {
  return `${slot}${family}`;
}

export function chainName(prefix: string, slot: Slot): string {
  return `${prefix}-${SLOTS[slot].chain}`;
}

/** The rules before those of services: it accepts redirected packets only, and only first packets pass the comparisons. */
const NON_LOCAL_RULES = [
  '-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN',
  '-m conntrack ! --ctstate DNAT -j RETURN',
];

/** Names of chains that mark those of a prefix as ours. kube-proxy has none. */
const markPrefix = (prefix: string): string => `KPNG-${prefix}-`;

/** An empty chain that names the owner. */
const ownerChain = ({ prefix, config }: RuleContext): string => markPrefix(prefix) + config.owner;

const TRIAL = 'TRIAL';

export function comment(text: string): string {
  return `-m comment --comment "${text}"`;
}

/** New connections that have not been redirected to a proxy port. */
const UNLED = '-m conntrack ! --ctstate ESTABLISHED,RELATED,DNAT';
/** Packets to the networks with node ports, by a rule for each. */
const NODE = 'NODE -m addrtype --dst-type LOCAL';

const PORTALS = comment('handle ClusterIPs; NOTE: this must be before the NodePort rules');
const NODE_PORTS = comment(
  'handle service NodePorts; NOTE: this must be the last rule in the chain',
);
const NON_LOCAL = comment('Ensure that non-local NodePort traffic can flow');
const PROXY_PORTS = comment('refuse what comes to proxy ports directly');
const REFUSED = comment('refuse service ports without endpoints');

/** In the order in which they are written: of those inserted into a chain, the last one comes first. */
const JUMPS: Readonly<Record<Table, readonly string[]>> = {
  filter: [
    `-I OUTPUT ${NODE} ${UNLED} ${REFUSED} -j NODEPORT-REJECT`,
    `-I INPUT ${NODE} ${UNLED} ${REFUSED} -j NODEPORT-REJECT`,
    `-I OUTPUT ${UNLED} ${REFUSED} -j PORTALS-REJECT`,
    `-I FORWARD ${UNLED} ${REFUSED} -j PORTALS-REJECT`,
    `-I INPUT ${UNLED} ${REFUSED} -j PORTALS-REJECT`,
    `-I INPUT ! -i lo ${UNLED} ${PROXY_PORTS} -j PROXY-PORTS`,
    `-I INPUT ${NON_LOCAL} -j NODEPORT-NON-LOCAL`,
  ],
  nat: [
    `-I OUTPUT ${PORTALS} -j PORTALS-HOST`,
    `-I PREROUTING ${PORTALS} -j PORTALS-CONTAINER`,
    `-A PREROUTING ${NODE} ${NODE_PORTS} -j NODEPORT-CONTAINER`,
    `-A OUTPUT ${NODE} ${NODE_PORTS} -j NODEPORT-HOST`,
  ],
};

function jumpLines({ prefix, family, config }: RuleContext, table: Table): string[] {
  return JUMPS[table].flatMap((line) => {
    const jump = line.replace('-j ', `-j ${prefix}-`);
    if (!jump.includes(' NODE ')) return [jump];
    return config.nodePortNetworks[family].map((network) =>
      jump.replace(' NODE', network.endsWith('/0') ? '' : ` -d ${network}`),
    );
  });
}

/** The chains of rules with jumps, and their targets. iptables lists matches in a different form. */
function endsOf(jumps: readonly string[]): string {
  const ends = jumps.map((rule) => rule.replace(/^(?:-[AI] )?(\S+).* -[jg] (\S+)$/, '$1 $2'));
  return ends.sort().join();
}

interface FoundTable {
  /** Rules of other chains that jump to ours, without the leading `-A`. */
  readonly jumps: string[];
  /** Number of rules in each of our chains, including owner chains. */
  readonly counts: Map<string, number>;
  readonly rules: string[];
}

export type Found = Readonly<Record<Table, FoundTable>>;

/** Finds the chains of a prefix in the output of `iptables-save`. */
export function findRules(prefix: string, text: string): Found {
  const nothing = (): FoundTable => ({ jumps: [], counts: new Map(), rules: [] });
  const found = { filter: nothing(), nat: nothing() };
  let table: Table | undefined;
  const isOurs = (chain: string): boolean =>
    chain.startsWith(markPrefix(prefix)) ||
    SLOT_ORDER.some((slot) => SLOTS[slot].table === table && chainName(prefix, slot) === chain);
  for (const line of text.split('\n')) {
    if (line.startsWith('*')) table = TABLES.find((name) => line === `*${name}`);
    if (table === undefined) continue;
    const { jumps, counts, rules } = found[table];
    const [, chain] = /^:(\S+)/.exec(line) ?? [];
    if (chain !== undefined && isOurs(chain)) counts.set(chain, 0);
    if (!line.startsWith('-A ')) continue;
    const [, from = ''] = line.split(' ', 2);
    const count = counts.get(from);
    if (count !== undefined) {
      counts.set(from, count + 1);
      rules.push(line.slice(3));
    } else if (counts.has(/ -[jg] (\S+)$/.exec(line)?.[1] ?? '')) jumps.push(line.slice(3));
  }
  return found;
}

/** The processes of ours that wrote rules in either table. */
export function ownersOf(prefix: string, found: Found): readonly string[] {
  const begin = markPrefix(prefix);
  const marks = TABLES.flatMap((table) => [...found[table].counts.keys()])
    .filter((chain) => chain.startsWith(begin))
    .map((chain) => chain.slice(begin.length));
  return [...new Set(marks)].filter((owner) => owner !== TRIAL);
}

type Sets = ReturnType<Elements['bySet']>;

/** Our chains in a table, and their rules in order. */
function wantedChains(context: RuleContext, sets: Sets, table: Table) {
  const { prefix, family } = context;
  const chains = new Map<string, readonly (Element | string)[]>();
  for (const slot of SLOT_ORDER) {
    if (SLOTS[slot].table !== table) continue;
    const name = chainName(prefix, slot);
    const before = slot === 'non-local' ? NON_LOCAL_RULES : (chains.get(name) ?? []);
    chains.set(name, [...before, ...(sets.get(slotName(slot, family)) ?? [])]);
  }
  return chains.set(ownerChain(context), []);
}

/** What of the found rules differs, by number, from what was written. */
export function damageIn(context: RuleContext, elements: Elements, found: Found): string[] {
  const sets = elements.bySet();
  return TABLES.flatMap((table) => {
    const { counts, jumps } = found[table];
    const wanted = [...wantedChains(context, sets, table)];
    const damaged = wanted.filter(([name, rules]) => counts.get(name) !== rules.length);
    const areSame = endsOf(jumpLines(context, table)) === endsOf(jumps);
    return [
      ...damaged.map(([name]) => `${name} has other rules`),
      ...(areSame ? [] : [`${table} has other jumps`]),
    ];
  });
}

/** Replaces all rules under our names, including those of other processes. Each table changes atomically. */
export function renderFull(context: RuleContext, elements: Elements, found: Found): string {
  const sets = elements.bySet();
  return TABLES.map((table) => {
    const own = wantedChains(context, sets, table);
    const { jumps, counts } = found[table];
    return section(table, [
      ...[...own.keys()].map((name) => `:${name} - [0:0]`),
      ...jumps.map((line) => `-D ${line}`),
      ...removal([...counts.keys()].filter((name) => !own.has(name))),
      ...jumpLines(context, table),
      ...ruleLines(context, own),
    ]);
  }).join('');
}

/**
 * Writes the differences in a family; empty if there are none. Fails if the chains are gone or belong to another process.
 *
 * Rejects are added first and removed last, so that no packet slips through between two tables: redirected packets
 * never match them.
 */
export function renderDelta(context: RuleContext, changes: readonly ElementChange[]): string {
  const { prefix, family } = context;
  const lines = (table: Table, value: 'before' | 'after'): string[] =>
    changes.flatMap(({ set, key, [value]: text }) => {
      const slot = set.slice(0, -1) as Slot;
      if (text === undefined || set !== slotName(slot, family)) return [];
      if (SLOTS[slot].table !== table) return [];
      const added = SLOTS[slot].at === 'first' ? '-I' : '-A';
      const verb = value === 'before' ? '-D' : added;
      return `${verb} ${chainName(prefix, slot)} ${ruleText(context, key, text)}`;
    });
  const part = (table: Table, some: readonly string[]): string =>
    some.length === 0 ? '' : section(table, [`-F ${ownerChain(context)}`, ...some]);
  return [
    part('filter', lines('filter', 'after')),
    part('nat', [...lines('nat', 'before'), ...lines('nat', 'after')]),
    part('filter', lines('filter', 'before')),
  ].join('');
}

/** Tests all rules in chains that no rule jumps to, and removes these again. */
export function renderTrial(context: RuleContext, elements: Elements): string {
  const { prefix } = context;
  const name = markPrefix(prefix) + TRIAL;
  const own = new RegExp(String.raw`^-[AI] \S+ (.*?)(?: -j ${prefix}-\S+)?$`);
  const sets = elements.bySet();
  const text = TABLES.map((table) => {
    // Some matches are valid only for some built-in chains, but all are valid here.
    const rules = ruleLines(context, wantedChains(context, sets, table));
    const lines = [...jumpLines(context, table), ...rules];
    return section(table, [
      `:${name} - [0:0]`,
      ...lines.map((line) => line.replace(own, `-A ${name} $1`)),
    ]);
  });
  return [...text, ...TABLES.map((table) => section(table, removal([name])))].join('');
}

/** Removes the found rules, jumps first. Empty if there are none. */
export function renderRemoval(found: Found): string {
  return TABLES.map((table) => {
    const { jumps, counts } = found[table];
    const lines = [...jumps.map((line) => `-D ${line}`), ...removal([...counts.keys()])];
    return lines.length === 0 ? '' : section(table, lines);
  }).join('');
}

function ruleLines(context: RuleContext, chains: ReturnType<typeof wantedChains>): string[] {
  return [...chains].flatMap(([name, rules]) =>
    rules.map((rule) => {
      const text = typeof rule === 'string' ? rule : ruleText(context, rule.key, rule.value);
      return `-A ${name} ${text}`;
    }),
  );
}

function ruleText({ family, config }: RuleContext, key: string, value: string): string {
  if (value.startsWith('-')) return `${key} ${value}`;
  const target = config.targets[family];
  if (target === undefined) return `${key} -j REDIRECT --to-ports ${value}`;
  const host = family === 6 ? `[${target}]` : target;
  return `${key} -j DNAT --to-destination ${host}:${value}`;
}

/** All are flushed before any is removed, as they may jump to each other. */
function removal(chains: readonly string[]): string[] {
  return [...chains.map((chain) => `-F ${chain}`), ...chains.map((chain) => `-X ${chain}`)];
}

function section(table: Table, lines: readonly string[]): string {
  return `*${table}\n${lines.map((line) => `${line}\n`).join('')}COMMIT\n`;
}
