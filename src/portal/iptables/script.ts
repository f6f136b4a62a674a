/** Our rules as text: scripts for `iptables-restore --noflush`, each for one family, and what iptables lists. */
import type { ElementChange, Elements } from '../rules/backend.ts';
import {
  areSameJumps,
  chainName,
  chainNames,
  hooksOf,
  jumpLines,
  ONLY_OURS,
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

export interface FoundTable {
  /** Rules of other chains that jump to ours, without the leading `-A`. */
  readonly jumps: readonly string[];
  /** Number of rules in each of our chains, including owner chains. */
  readonly counts: ReadonlyMap<string, number>;
  readonly rules: readonly string[];
}

export type Found = Readonly<Record<Table, FoundTable>>;

/** Finds the chains of a prefix in the output of `iptables-save`. */
export function findRules(prefix: string, text: string): Found {
  const sections = new Map(
    text.split(/^\*/m).map((part) => {
      const [table = '', ...lines] = part.split('\n');
      return [table, lines];
    }),
  );
  return inTables((table) => {
    const lines = sections.get(table) ?? [];
    const names = new Set([...chainNames(prefix, table), trialChain(prefix)]);
    const chains = lines.flatMap((line) => /^:(\S+)/.exec(line)?.[1] ?? []);
    const isOurs = (name: string) => names.has(name) || ownerOfChain(prefix, name) !== undefined;
    return rulesOfChains(chains.filter(isOurs), lines);
  });
}

function inTables(find: (table: Table) => FoundTable): Found {
  return { filter: find('filter'), nat: find('nat') };
}

/** The processes of ours that wrote rules in either table. */
export function ownersOf(prefix: string, found: Found): readonly string[] {
  return [...new Set(chainsOf(found).flatMap((chain) => ownerOfChain(prefix, chain) ?? []))];
}

/**
 * Whether the chains are ours rather than kube-proxy's: they have an owner chain, or a kind that kube-proxy never
 * had.
 */
export function areOurs(prefix: string, found: Found): boolean {
  const certain = new Set(ONLY_OURS.map((chain) => `${prefix}-${chain}`));
  const hasChain = chainsOf(found).some((name) => certain.has(name));
  return hasChain || ownersOf(prefix, found).length > 0;
}

function chainsOf(found: Found): string[] {
  return TABLES.flatMap((table) => [...found[table].counts.keys()]);
}

export function isNothing(found: Found): boolean {
  return TABLES.every((table) => found[table].counts.size + found[table].jumps.length === 0);
}

function rulesOfChains(chains: readonly string[], lines: readonly string[]): FoundTable {
  const found = { jumps: [] as string[], rules: [] as string[] };
  const counts = new Map(chains.map((chain) => [chain, 0]));
  for (const line of lines.filter((each) => each.startsWith('-A ')).map((each) => each.slice(3))) {
    const [, from = '', to = ''] = /^(\S+)(?:.* -[jg] (\S+)$)?/.exec(line) ?? [];
    const count = counts.get(from);
    if (count !== undefined) {
      counts.set(from, count + 1);
      found.rules.push(line);
    } else if (counts.has(to)) found.jumps.push(line);
  }
  return { ...found, counts };
}

/** Our chains in a table, and the desired number of rules of each. */
export function wantedCounts(
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

/**
 * Lists the built-in chains with jumps. With `elements`, also the last rule of each chain of ours, as listing all rules
 * is slow; that fails if one of the chains is missing.
 */
export function renderListing(context: RuleContext, table: Table, elements?: Elements): string {
  const chains = new Set(hooksOf(table));
  if (elements !== undefined) {
    for (const [chain, count] of wantedCounts(context, elements, table)) {
      chains.add(count === 0 ? chain : `${chain} ${count}`);
    }
  }
  return section(
    table,
    Array.from(chains, (chain) => `-S ${chain}`),
  );
}

/**
 * Parses the output of those scripts for both tables. A chain counts as complete if its last rule exists or, without
 * `hasChains`, if it was not listed. The names of our chains identify the table.
 */
export function readListing(
  context: RuleContext,
  elements: Elements,
  printed: string,
  hasChains: boolean,
): Found {
  const lines = printed.split('\n');
  return inTables((table) => {
    const wanted = wantedCounts(context, elements, table);
    const found = rulesOfChains([...wanted.keys()], lines);
    const counts = new Map(found.counts);
    for (const [chain, count] of wanted) {
      const isSeen = (counts.get(chain) ?? 0) > 0 && count > 0;
      if (!hasChains || isSeen) counts.set(chain, count);
    }
    return { ...found, counts };
  });
}

/**
 * Replaces all rules under our names, including those of other processes. `found`: the existing ones. Each table
 * changes atomically. `onlyDamaged`: only chains with a wrong number of rules, and the jumps of a table if some are
 * missing; '' if nothing is wrong.
 */
export function renderFull(
  context: RuleContext,
  elements: Elements,
  found: Found,
  onlyDamaged: boolean,
): string {
  return TABLES.map((table) => {
    const own = wantedCounts(context, elements, table);
    const parts = onlyDamaged
      ? damagedParts(context, elements, found, table)
      : { chains: [...own.keys()], jumps: true };
    if (parts.chains.length === 0 && !parts.jumps) return '';
    const { jumps: stale, counts } = found[table];
    return section(table, [
      ...parts.chains.map((name) => `:${name} - [0:0]`),
      ...(parts.jumps ? stale.map((line) => `-D ${line}`) : []),
      ...[...counts.keys()].filter((name) => !own.has(name)).flatMap(removal),
      ...(parts.jumps ? jumpLines(context, table) : []),
      ...ruleLines(context, table, elements, new Set(parts.chains)),
    ]);
  }).join('');
}

/** The chains whose number of rules differs from the elements, and whether jumps are missing. */
export function damagedParts(
  context: RuleContext,
  elements: Elements,
  found: Found,
  table: Table,
): { readonly chains: readonly string[]; readonly jumps: boolean } {
  const { counts, jumps: lines } = found[table];
  return {
    chains: [...wantedCounts(context, elements, table)].flatMap(([name, count]) =>
      counts.get(name) === count ? [] : [name],
    ),
    jumps: !areSameJumps(jumpLines(context, table), lines),
  };
}

/**
 * Writes the difference. Fails if the chains are gone or belong to another process.
 *
 * Rejects are added first and removed last, so that no packet slips through between two tables: redirected packets
 * never match them.
 */
export function renderDelta(context: RuleContext, changes: readonly ElementChange[]): string {
  const { prefix, config } = context;
  const lines = { add: [] as string[], nat: [] as string[], remove: [] as string[] };
  const owned = `-F ${ownerChain(prefix, config.owner)}`;
  const note = (verb: '-D' | 'add', { set, key }: ElementChange, value: string): void => {
    const { slot } = readSlotName(set);
    const { table, chain, at } = SLOTS[slot];
    const word = verb === '-D' ? verb : at === 'first' ? '-I' : '-A';
    const line = `${word} ${chainName(prefix, chain)} ${ruleText(context, key, value)}`;
    if (table === 'nat') lines.nat.push(line);
    else lines[verb === '-D' ? 'remove' : 'add'].push(line);
  };
  for (const change of changes) if (change.before !== undefined) note('-D', change, change.before);
  for (const change of changes) if (change.after !== undefined) note('add', change, change.after);
  const text = [
    ['filter', lines.add],
    ['nat', lines.nat],
    ['filter', lines.remove],
  ] as const;
  return text
    .filter(([, some]) => some.length > 0)
    .map(([table, some]) => section(table, [owned, ...some]))
    .join('');
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
    const { jumps: lines, counts } = found[table];
    const chains = [...counts.keys()];
    if (lines.length + chains.length === 0) return '';
    return section(table, [
      ...lines.map((line) => `-D ${line}`),
      // All are flushed before any is removed, as they may jump to each other.
      ...chains.map((name) => `-F ${name}`),
      ...chains.map((name) => `-X ${name}`),
    ]);
  }).join('');
}

/** `chains`: those whose rules are needed; by default all. */
function ruleLines(
  context: RuleContext,
  table: Table,
  elements: Elements,
  chains?: ReadonlySet<string>,
): string[] {
  const lines: string[] = [];
  const sets = elements.bySet();
  for (const slot of SLOT_ORDER) {
    const chain = chainName(context.prefix, SLOTS[slot].chain);
    if (SLOTS[slot].table !== table || chains?.has(chain) === false) continue;
    for (const rule of slot === PRELUDE.slot ? PRELUDE.rules : [])
      lines.push(`-A ${chain} ${rule}`);
    for (const { key, value } of sets.get(slotName(slot, context.family)) ?? []) {
      lines.push(`-A ${chain} ${ruleText(context, key, value)}`);
    }
  }
  return lines;
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
