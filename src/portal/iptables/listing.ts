/** Our rules in the kernel, as listed by iptables. */
import type { Elements } from '../rules/backend.ts';
import {
  chainName,
  chainNames,
  hooksOf,
  ONLY_OURS,
  ownerChain,
  ownerOfChain,
  PRELUDE,
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
  const sections = new Map<string, string[]>();
  let current: string[] = [];
  for (const line of text.split('\n')) {
    if (line.startsWith('*')) sections.set(line.slice(1), (current = []));
    else if (line.startsWith(':') || line.startsWith('-')) current.push(line);
  }
  return inTables((table) => {
    const lines = sections.get(table) ?? [];
    const names = new Set([...chainNames(prefix, table), trialChain(prefix)]);
    const chains = lines
      .filter((line) => line.startsWith(':'))
      .map((line) => line.slice(1).split(' ')[0] ?? '');
    const isOurs = (name: string) => names.has(name) || ownerOfChain(prefix, name) !== undefined;
    return rulesOfChains(chains.filter(isOurs), lines);
  });
}

function inTables(find: (table: Table) => FoundTable): Found {
  return { filter: find('filter'), nat: find('nat') };
}

/** The processes of ours that wrote rules in either table. */
export function ownersOf(prefix: string, found: Found): readonly string[] {
  const chains = TABLES.flatMap((table) => [...found[table].counts.keys()]);
  const owners = chains.map((chain) => ownerOfChain(prefix, chain));
  return [...new Set(owners.filter((owner) => owner !== undefined))];
}

/**
 * Whether the chains are ours rather than kube-proxy's: they have an owner chain, or a kind that kube-proxy never
 * had.
 */
export function areOurs(prefix: string, found: Found): boolean {
  const certain = new Set(ONLY_OURS.map((chain) => `${prefix}-${chain}`));
  return (
    ownersOf(prefix, found).length > 0 ||
    TABLES.some((table) => [...found[table].counts.keys()].some((name) => certain.has(name)))
  );
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
  const lines = [...chains].map((chain) => `-S ${chain}\n`);
  return `*${table}\n${lines.join('')}COMMIT\n`;
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
