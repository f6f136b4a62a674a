/**
 * A quick look at chains that were written before, to find out what somebody has removed: listing all rules
 * takes as long as writing many of them.
 */
import type { LedgerView } from '../rules/ledger.ts';
import { chainNames, ownerChain, TABLES, type SlotName, type Table } from './chains.ts';
import { findRules, type Found, type FoundTable } from './found.ts';
import { areThere, jumps } from './jumps.ts';
import { wantedCounts, type Place } from './script.ts';

/**
 * A script that lists the built-in chains of a table that jumps are in, and of each chain of ours only the last
 * rule that there should be. It fails when one of the chains is not there, such as the one that says whose they are.
 */
export function renderInspection(place: Place, ledger: LedgerView<SlotName>, table: Table): string {
  const { prefix, config } = place;
  const wanted = wantedCounts(place, ledger);
  const lines = [
    ...builtIn(place, table).map((chain) => `-S ${chain}`),
    `-S ${ownerChain(prefix, config.owner)}`,
    ...chainNames(prefix, table).map((chain) => {
      const count = wanted.get(chain) ?? 0;
      return count === 0 ? `-S ${chain}` : `-S ${chain} ${count}`;
    }),
  ];
  return `*${table}\n${lines.join('\n')}\nCOMMIT\n`;
}

/** What the scripts have printed, in the order of `TABLES`. A chain whose last rule is there is taken to be whole. */
export function readInspection(
  place: Place,
  ledger: LedgerView<SlotName>,
  printed: readonly string[],
): Found {
  const wanted = wantedCounts(place, ledger);
  return withCounts(asFound(place, printed), (chain, seen) => {
    const count = wanted.get(chain) ?? 0;
    return seen > 0 && count > 0 ? count : seen;
  });
}

/** A script that lists the built-in chains of both tables that jumps are in, and nothing of ours. */
export function renderJumpListing(place: Place): string {
  return TABLES.map((table) => {
    const lines = builtIn(place, table).map((chain) => `-S ${chain}\n`);
    return `*${table}\n${lines.join('')}COMMIT\n`;
  }).join('');
}

/** Whether that script has printed all jumps. */
export function hasAllJumps({ prefix, family, config }: Place, printed: string): boolean {
  const found = jumpsIn({ prefix, family, config }, printed);
  return areThere(
    jumps(prefix, config.nodePortNetworks[family]),
    TABLES.flatMap((table) => found[table].jumps),
  );
}

/** What that script has printed. The chains of ours, which it does not list, are taken to be whole. */
export function readJumpListing(
  place: Place,
  ledger: LedgerView<SlotName>,
  printed: string,
): Found {
  const wanted = wantedCounts(place, ledger);
  return withCounts(jumpsIn(place, printed), (chain) => wanted.get(chain) ?? 0);
}

/** Chains of the two tables have names of their own, so a jump tells which table it is in. */
function jumpsIn(place: Place, printed: string): Found {
  return asFound(
    place,
    TABLES.map(() => printed),
  );
}

/** Built-in chains with jumps to ours. */
function builtIn({ prefix, family, config }: Place, table: Table): string[] {
  const all = jumps(prefix, config.nodePortNetworks[family]);
  return [...new Set(all.filter((jump) => jump.table === table).map(({ from }) => from))];
}

/** As if all our chains had been listed, with the rules that were printed for each table. */
function asFound({ prefix, config }: Place, printed: readonly string[]): Found {
  const text = TABLES.map((table, index) => {
    const names = [...chainNames(prefix, table), ownerChain(prefix, config.owner)];
    const rules = (printed[index] ?? '').split('\n').filter((line) => line.startsWith('-A '));
    return [`*${table}`, ...names.map((name) => `:${name} - [0:0]`), ...rules, ''].join('\n');
  });
  return findRules(prefix, text.join(''));
}

function withCounts(found: Found, count: (chain: string, seen: number) => number): Found {
  const change = (each: FoundTable): FoundTable => {
    const counts = [...each.counts].map(([chain, seen]): [string, number] => [
      chain,
      count(chain, seen),
    ]);
    return { ...each, counts: new Map(counts) };
  };
  return { filter: change(found.filter), nat: change(found.nat) };
}
