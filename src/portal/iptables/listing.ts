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

/** Of one table. */
export interface FoundTable {
  /** Rules of other chains that jump to ours, without the leading `-A`. */
  readonly jumps: readonly string[];
  /** Number of rules in each of our chains, including owner chains. */
  readonly counts: ReadonlyMap<string, number>;
  /** These rules. */
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
  return {
    filter: findIn(prefix, 'filter', sections.get('filter') ?? []),
    nat: findIn(prefix, 'nat', sections.get('nat') ?? []),
  };
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

function findIn(prefix: string, table: Table, lines: readonly string[]): FoundTable {
  const names = new Set([...chainNames(prefix, table), trialChain(prefix)]);
  const found = { jumps: [] as string[], rules: [] as string[] };
  const counts = new Map<string, number>();
  for (const line of lines) {
    if (!line.startsWith(':')) continue;
    const name = line.slice(1).split(' ')[0] ?? '';
    if (ownerOfChain(prefix, name) !== undefined || names.has(name)) counts.set(name, 0);
  }
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

/** Our chains in a table. */
export function ownChains({ prefix, config }: RuleContext, table: Table): string[] {
  return [...chainNames(prefix, table), ownerChain(prefix, config.owner)];
}

/** The desired number of rules of each chain. Chains without rules may be missing. */
export function wantedCounts(
  { prefix, family }: RuleContext,
  elements: Elements,
): Map<string, number> {
  const counts = new Map<string, number>();
  const add = (chain: string, more: number): void => {
    counts.set(chain, (counts.get(chain) ?? 0) + more);
  };
  for (const slot of SLOT_ORDER) {
    add(chainName(prefix, SLOTS[slot].chain), elements.size(slotName(slot, family)));
  }
  add(chainName(prefix, SLOTS[PRELUDE.slot].chain), PRELUDE.rules.length);
  return counts;
}

/**
 * Lists the built-in chains with jumps. With `elements`, also the last rule of each chain of ours, as listing all rules
 * is slow; that fails if one of the chains is missing.
 */
export function renderListing(context: RuleContext, table: Table, elements?: Elements): string {
  const chains = new Set(hooksOf(table));
  if (elements !== undefined) {
    const wanted = wantedCounts(context, elements);
    for (const chain of ownChains(context, table)) {
      const count = wanted.get(chain) ?? 0;
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
  const rules = printed.split('\n').filter((line) => line.startsWith('-A '));
  const section = (table: Table): string => {
    const head = ownChains(context, table).map((name) => `:${name} - [0:0]\n`);
    return `*${table}\n${head.join('')}${rules.join('\n')}\n`;
  };
  const wanted = wantedCounts(context, elements);
  const whole = (each: FoundTable): FoundTable => {
    const counts = [...each.counts].map(([chain, seen]): [string, number] => {
      const count = wanted.get(chain) ?? 0;
      return [chain, !hasChains || (seen > 0 && count > 0) ? count : seen];
    });
    return { ...each, counts: new Map(counts) };
  };
  const found = findRules(context.prefix, TABLES.map(section).join(''));
  return { filter: whole(found.filter), nat: whole(found.nat) };
}
