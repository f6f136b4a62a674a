/** Scripts for `nft -f -`. Each one is a transaction: all of it counts, or nothing. */
import type { RuleConfig } from '../rules/config.ts';
import type { ItemChange, LedgerView } from '../rules/ledger.ts';
import { SET_NAMES, type SetName } from './elements.ts';
import { ownerChain, renderTable } from './rules.ts';

/**
 * Replaces the table, whatever it was, by one with all elements of the ledger. As it is one
 * transaction, no packet sees the table missing or half filled.
 */
export function renderFull(table: string, config: RuleConfig, ledger: LedgerView<SetName>): string {
  const { families } = config;
  const text = [renderRemoval(table), renderTable(table, config)];
  for (const set of SET_NAMES) {
    if (!families.some((family) => set.endsWith(String(family)))) continue;
    text.push(renderElements('add', table, set, entriesOf(ledger.items(set))));
  }
  return text.join('');
}

/**
 * Writes only what differs. It fails as a whole when the table is gone, belongs to another process,
 * or differs from what was written last.
 *
 * All removals come before all additions, since another value under the same key is a new element.
 */
export function renderDelta(
  table: string,
  owner: string,
  changes: readonly ItemChange<SetName>[],
): string {
  const remove = new Map<SetName, string[]>();
  const add = new Map<SetName, string[]>();
  for (const { set, key, before, after } of changes) {
    if (before !== undefined) push(remove, set, key);
    if (after !== undefined) push(add, set, entry(key, after));
  }
  const text = [`flush chain inet ${table} ${ownerChain(owner)}\n`];
  for (const [set, keys] of remove) text.push(renderElements('delete', table, set, keys));
  for (const [set, entries] of add) text.push(renderElements('add', table, set, entries));
  return text.join('');
}

/** Removes the table; no error when there is none. */
export function renderRemoval(table: string): string {
  return `add table inet ${table}\ndelete table inet ${table}\n`;
}

function renderElements(
  verb: 'add' | 'delete',
  table: string,
  set: SetName,
  entries: readonly string[],
): string {
  if (entries.length === 0) return '';
  return `${verb} element inet ${table} ${set} {\n${entries.join(',\n')}\n}\n`;
}

function entriesOf(elements: ReadonlyMap<string, string>): string[] {
  const entries: string[] = [];
  for (const [key, value] of elements) entries.push(entry(key, value));
  return entries;
}

function entry(key: string, value: string): string {
  return value === '' ? key : `${key} : ${value}`;
}

function push(map: Map<SetName, string[]>, set: SetName, text: string): void {
  const list = map.get(set);
  if (list === undefined) map.set(set, [text]);
  else list.push(text);
}
