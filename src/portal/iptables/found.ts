/** What of ours is in the kernel, as `iptables-save` lists it. */
import { chainNames, ONLY_OURS, ownerOfChain, TABLES, trialChain, type Table } from './chains.ts';

/** Of one table. */
export interface FoundTable {
  /** Rules of other chains that lead to ours, without the leading `-A`. */
  readonly jumps: readonly string[];
  /** Names of our chains, with those that say whose they are. */
  readonly chains: readonly string[];
  /** The rules in them. */
  readonly rules: readonly string[];
  /** How many rules each of them has. */
  readonly counts: ReadonlyMap<string, number>;
  /** Processes of ours that have written here. */
  readonly owners: readonly string[];
}

export type Found = Readonly<Record<Table, FoundTable>>;

/** Looks for the chains of a prefix in what `iptables-save` prints. */
export function findRules(prefix: string, text: string): Found {
  const sections = sectionsOf(text);
  const [filter, nat] = TABLES.map((table) => findIn(prefix, table, sections.get(table) ?? []));
  return { filter: filter ?? NOTHING, nat: nat ?? NOTHING };
}

/** The processes of ours that have written in either table. */
export function ownersOf(found: Found): readonly string[] {
  return [...new Set(TABLES.flatMap((table) => found[table].owners))];
}

/**
 * Whether the chains are ours and not what kube-proxy has left, whose names are the same: we leave a
 * chain with our own name, and have chains that kube-proxy never had.
 */
export function areOurs(prefix: string, found: Found): boolean {
  const certain = new Set(ONLY_OURS.map((chain) => `${prefix}-${chain}`));
  return (
    ownersOf(found).length > 0 ||
    TABLES.some((table) => found[table].chains.some((name) => certain.has(name)))
  );
}

export function isNothing(found: Found): boolean {
  return TABLES.every((table) => found[table].chains.length + found[table].jumps.length === 0);
}

const NOTHING: FoundTable = { jumps: [], chains: [], rules: [], counts: new Map(), owners: [] };

function findIn(prefix: string, table: Table, lines: readonly string[]): FoundTable {
  const names = new Set([...chainNames(prefix, table), trialChain(prefix)]);
  const owners: string[] = [];
  const chains: string[] = [];
  for (const line of lines) {
    if (!line.startsWith(':')) continue;
    const name = line.slice(1).split(' ')[0] ?? '';
    const owner = ownerOfChain(prefix, name);
    if (owner !== undefined) owners.push(owner);
    if (owner !== undefined || names.has(name)) chains.push(name);
  }
  const counts = new Map(chains.map((chain) => [chain, 0]));
  const jumps: string[] = [];
  const rules: string[] = [];
  for (const line of lines) {
    const [, from = '', rest] = /^-A (\S+) (.*)$/.exec(line) ?? [];
    if (rest === undefined) continue;
    const count = counts.get(from);
    if (count !== undefined) {
      counts.set(from, count + 1);
      rules.push(`${from} ${rest}`);
    } else if (counts.has(/(?:^| )-[jg] (\S+)$/.exec(rest)?.[1] ?? '')) {
      jumps.push(`${from} ${rest}`);
    }
  }
  return { jumps, chains, rules, counts, owners };
}

/** Lines by table. */
function sectionsOf(text: string): Map<string, string[]> {
  const sections = new Map<string, string[]>();
  let current: string[] = [];
  for (const line of text.split('\n')) {
    if (line.startsWith('*')) sections.set(line.slice(1), (current = []));
    else if (line.startsWith(':') || line.startsWith('-')) current.push(line);
  }
  return sections;
}
