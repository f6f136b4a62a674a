/**
 * A quick look at chains that were written before, to find out what somebody has removed: listing all rules
 * takes as long as writing many of them.
 */
import type { LedgerView } from '../rules/ledger.ts';
import { chainNames, ownerChain, TABLES, type SlotName, type Table } from './chains.ts';
import { findRules, type Found, type FoundTable } from './found.ts';
import { jumps } from './jumps.ts';
import { wantedCounts, type Place } from './script.ts';

/**
 * What to look at: also the chains of ours, or only the jumps to them, where it is known that packets of the host
 * pass the chains.
 */
export type Scope = 'all' | 'jumps';

/**
 * A script that lists the built-in chains of a table that jumps are in, and of each chain of ours only the last
 * rule that there should be. It fails when one of the chains is not there, such as the one that says whose they are.
 */
export function renderInspection(
  place: Place,
  ledger: LedgerView<SlotName>,
  table: Table,
  scope: Scope,
): string {
  const { prefix, family, config } = place;
  const all = jumps(prefix, config.nodePortNetworks[family]);
  const builtIn = new Set(all.filter((jump) => jump.table === table).map(({ from }) => from));
  const wanted = wantedCounts(place, ledger);
  const lines = [
    ...[...builtIn].map((chain) => `-S ${chain}`),
    `-S ${ownerChain(prefix, config.owner)}`,
    ...(scope === 'jumps' ? [] : chainNames(prefix, table)).map((chain) => {
      const count = wanted.get(chain) ?? 0;
      return count === 0 ? `-S ${chain}` : `-S ${chain} ${count}`;
    }),
  ];
  return `*${table}\n${lines.join('\n')}\nCOMMIT\n`;
}

/**
 * What the scripts have printed, in the order of `TABLES`. A chain whose last rule is there is taken to be whole, and
 * so is one that was not looked at.
 */
export function readInspection(
  place: Place,
  ledger: LedgerView<SlotName>,
  printed: readonly string[],
  scope: Scope,
): Found {
  const { prefix, config } = place;
  const wanted = wantedCounts(place, ledger);
  const text = TABLES.map((table, index) => {
    const names = [...chainNames(prefix, table), ownerChain(prefix, config.owner)];
    const rules = (printed[index] ?? '').split('\n').filter((line) => line.startsWith('-A '));
    return [`*${table}`, ...names.map((name) => `:${name} - [0:0]`), ...rules, ''].join('\n');
  });
  const found = findRules(prefix, text.join(''));
  const whole = (each: FoundTable): FoundTable => {
    const counts = [...each.counts].map(([chain, seen]): [string, number] => {
      const count = wanted.get(chain) ?? 0;
      return [chain, scope === 'jumps' || (seen > 0 && count > 0) ? count : seen];
    });
    return { ...each, counts: new Map(counts) };
  };
  return { filter: whole(found.filter), nat: whole(found.nat) };
}
