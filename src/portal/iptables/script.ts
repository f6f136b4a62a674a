/** Our rules as text: scripts for `iptables-restore --noflush`, each for one family, and what iptables lists. */
import type { ElementChange, Elements } from '../rules/backend.ts';
import {
  areSameJumps,
  chainName,
  chainNames,
  jumpLines,
  ownerChain,
  ownerOfChain,
  PRELUDE,
  readSlotName,
  type RuleContext,
  SLOT_ORDER,
  slotName,
  SLOTS,
  TABLES,
  trialChain,
  type Table,
} from './chains.ts';

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
  for (const line of text.split('\n')) {
    if (line.startsWith('*')) table = TABLES.find((name) => line === `*${name}`);
    if (table === undefined) continue;
    const { jumps, counts, rules } = found[table];
    const [, chain] = /^:(\S+)/.exec(line) ?? [];
    if (chain !== undefined && isOurs(prefix, table, chain)) counts.set(chain, 0);
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

function isOurs(prefix: string, table: Table, chain: string): boolean {
  const isSpecial = chain === trialChain(prefix) || ownerOfChain(prefix, chain) !== undefined;
  return isSpecial || chainNames(prefix, table).includes(chain);
}

/** The processes of ours that wrote rules in either table. */
export function ownersOf(prefix: string, found: Found): readonly string[] {
  const chains = TABLES.flatMap((table) => [...found[table].counts.keys()]);
  return [...new Set(chains.flatMap((chain) => ownerOfChain(prefix, chain) ?? []))];
}

/** Our chains in a table, and the desired number of rules of each. */
function wantedCounts(
  { prefix, family, config }: RuleContext,
  elements: Elements,
  table: Table,
): ReadonlyMap<string, number> {
  const names = [...chainNames(prefix, table), ownerChain(prefix, config.owner)];
  const counts = new Map(names.map((name) => [name, 0]));
  for (const slot of SLOT_ORDER) {
    if (SLOTS[slot].table !== table) continue;
    const name = chainName(prefix, SLOTS[slot].chain);
    const more = slot === PRELUDE.slot ? PRELUDE.rules.length : 0;
    counts.set(name, (counts.get(name) ?? 0) + elements.size(slotName(slot, family)) + more);
  }
  return counts;
}

/** What of the found rules differs, by number, from what was written. */
export function damageIn(context: RuleContext, elements: Elements, found: Found): string[] {
  return TABLES.flatMap((table) => {
    const { counts, jumps } = found[table];
    const wanted = [...wantedCounts(context, elements, table)];
    const damaged = wanted.filter(([name, count]) => counts.get(name) !== count);
    return [
      ...damaged.map(([name]) => `${name} has other rules`),
      ...(areSameJumps(jumpLines(context, table), jumps) ? [] : [`${table} has other jumps`]),
    ];
  });
}

/** Replaces all rules under our names, including those of other processes. Each table changes atomically. */
export function renderFull(context: RuleContext, elements: Elements, found: Found): string {
  return TABLES.map((table) => {
    const own = wantedCounts(context, elements, table);
    const { jumps, counts } = found[table];
    return section(table, [
      ...[...own.keys()].map((name) => `:${name} - [0:0]`),
      ...jumps.map((line) => `-D ${line}`),
      ...[...counts.keys()].filter((name) => !own.has(name)).flatMap(removal),
      ...jumpLines(context, table),
      ...ruleLines(context, table, elements),
    ]);
  }).join('');
}

/**
 * Writes the difference. Fails if the chains are gone or belong to another process.
 *
 * Rejects are added first and removed last, so that no packet slips through between two tables: redirected packets
 * never match them.
 */
export function renderDelta(context: RuleContext, changes: readonly ElementChange[]): string {
  const { prefix, config } = context;
  const first: string[] = [];
  const nat: string[] = [];
  const last: string[] = [];
  const write = (filter: string[], { set, key }: ElementChange, value: string | undefined) => {
    if (value === undefined) return;
    const { table, chain, at } = SLOTS[readSlotName(set).slot];
    const verb = filter === last ? '-D' : at === 'first' ? '-I' : '-A';
    const line = `${verb} ${chainName(prefix, chain)} ${ruleText(context, key, value)}`;
    (table === 'nat' ? nat : filter).push(line);
  };
  for (const change of changes) write(last, change, change.before);
  for (const change of changes) write(first, change, change.after);
  const owned = `-F ${ownerChain(prefix, config.owner)}`;
  const part = (table: Table, lines: readonly string[]): string =>
    lines.length === 0 ? '' : section(table, [owned, ...lines]);
  return part('filter', first) + part('nat', nat) + part('filter', last);
}

/** Tests all rules in chains that no rule jumps to, and removes these again. */
export function renderTrial(context: RuleContext, elements: Elements): string {
  const { prefix } = context;
  const name = trialChain(prefix);
  const own = new RegExp(String.raw`^-[AI] \S+ (.*?)(?: -j ${prefix}-\S+)?$`);
  const text = TABLES.map((table) => {
    // Some matches are valid only for some built-in chains, but all are valid here.
    const lines = [...jumpLines(context, table), ...ruleLines(context, table, elements)];
    return section(table, [
      `:${name} - [0:0]`,
      ...lines.map((line) => line.replace(own, `-A ${name} $1`)),
    ]);
  });
  return [...text, ...TABLES.map((table) => section(table, removal(name)))].join('');
}

/** Removes the found rules, jumps first. Empty if there are none. */
export function renderRemoval(found: Found): string {
  return TABLES.map((table) => {
    const { jumps, counts } = found[table];
    const chains = [...counts.keys()];
    if (jumps.length + chains.length === 0) return '';
    return section(table, [
      ...jumps.map((line) => `-D ${line}`),
      // All are flushed before any is removed, as they may jump to each other.
      ...chains.map((name) => `-F ${name}`),
      ...chains.map((name) => `-X ${name}`),
    ]);
  }).join('');
}

function ruleLines(context: RuleContext, table: Table, elements: Elements): string[] {
  const sets = elements.bySet();
  return SLOT_ORDER.filter((slot) => SLOTS[slot].table === table).flatMap((slot) => {
    const begin = `-A ${chainName(context.prefix, SLOTS[slot].chain)}`;
    const rules = sets.get(slotName(slot, context.family)) ?? [];
    const prelude: readonly string[] = slot === PRELUDE.slot ? PRELUDE.rules : [];
    const own = rules.map(({ key, value }) => ruleText(context, key, value));
    return prelude.concat(own).map((rule) => `${begin} ${rule}`);
  });
}

function ruleText({ family, config }: RuleContext, key: string, value: string): string {
  if (value.startsWith('-')) return `${key} ${value}`;
  const target = config.targets[family];
  if (target === undefined) return `${key} -j REDIRECT --to-ports ${value}`;
  const host = family === 6 ? `[${target}]` : target;
  return `${key} -j DNAT --to-destination ${host}:${value}`;
}

function removal(chain: string): string[] {
  return [`-F ${chain}`, `-X ${chain}`];
}

function section(table: Table, lines: readonly string[]): string {
  return `*${table}\n${lines.map((line) => `${line}\n`).join('')}COMMIT\n`;
}
