/** Parses the output of `nft list table`, and compares it with the desired table. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import ipaddr from 'ipaddr.js';
import type { ElementChange, Elements, RuleConfig } from '../rules/backend.ts';
import { networksOf } from '../node-addresses.ts';
import { allElements, renderTable } from './table.ts';

/** Lines parsed before yielding to other work. */
const PORTION = 1000;

const HEAD = /^\s((?:chain|map|set) \S+) \{/;

/** The lines within chains, sets and maps, with their name: `map services4`; the first one of each is empty. */
export function* linesOf(listing: string): Generator<[name: string, text: string]> {
  let name = '';
  for (const [line] of listing.matchAll(/.+/g)) {
    const head = HEAD.exec(line);
    if (head !== null) yield [(name = head[1] ?? ''), ''];
    else if (line.startsWith('\t}')) name = '';
    else if (name !== '') yield [name, line.trim()];
  }
}

/** A line of a set that has no elements. */
const IS_PROPERTY = /^(?:$|#|type |flags |size )/;

/** The elements in a line of a set or map, as key and value; the value is empty in a set. */
export function* elementsIn(text: string): Generator<[key: string, value: string]> {
  if (IS_PROPERTY.test(text)) return;
  for (const part of text.replace(/^elements = \{|\}$/g, '').split(',')) {
    const [key = '', value = ''] = part.trim().split(' : ');
    if (key !== '') yield [key, value];
  }
}

/**
 * Compares a table with the desired one: elements one by one, and the rules of each chain by number, as nft lists them in
 * a different form.
 *
 * - `owner`: the process that wrote it; undefined: unknown
 * - `difference`: the first one; undefined: none is visible. Chains and sets that are not ours do not count.
 * - `stale`: chains and sets that the desired table does not have, or not of this type: `chain owner-1234`
 * - `changes`: those that make its elements the desired ones once the stale sets are removed
 */
export async function readTable(listing: string, config: RuleConfig, elements: Elements) {
  const desired: Outline = new Map();
  for (const line of linesOf(renderTable('table', config))) note(desired, line);
  const missing = new Map(
    Array.from(
      Map.groupBy(allElements(config, elements), ({ set }) => set),
      ([set, some]) => [set, new Map(some.map(({ key, value }) => [key, value]))],
    ),
  );
  const listed: Outline = new Map();
  const changes: ElementChange[] = [];
  let lines = 0;
  for (const line of linesOf(listing)) {
    lines += 1;
    if (lines % PORTION === 0) await nextTurn();
    note(listed, line);
    const [name, text] = line;
    const type = listed.get(name);
    if (name.startsWith('chain ') || type !== desired.get(name)) continue;
    const set = name.slice('map '.length);
    const values = missing.get(set);
    for (const [key, before] of elementsIn(text)) {
      const own = values?.has(key) === true ? key : canonicalKey(key, String(type));
      const after = values?.get(own);
      values?.delete(own);
      if (before !== after) changes.push({ set, key, before, after });
    }
  }
  for (const [set, values] of missing) {
    for (const [key, after] of values) changes.push({ set, key, before: undefined, after });
  }
  const names = [...listed.keys()];
  const isKept = (name: string): boolean =>
    name.startsWith('chain ') ? desired.has(name) : listed.get(name) === desired.get(name);
  const different = [...desired].find(([name, value]) => listed.get(name) !== value)?.[0];
  const [change] = changes;
  return {
    owner: names.map((name) => /^chain owner-(\w+)$/.exec(name)?.[1]).find((name) => name),
    difference: different ? `${different} is not as it was written` : change && changeText(change),
    stale: names.filter((name) => !isKept(name)),
    changes,
  };
}

/** Number of lines of each chain, and type of each set: `chain refuse`, `map services4`. */
type Outline = Map<string, number | string>;

function note(outline: Outline, [name, text]: readonly [name: string, text: string]): void {
  const before = outline.get(name);
  if (name.startsWith('chain ')) outline.set(name, Number(before ?? -1) + 1);
  else if (/^(?:$|type |flags )/.test(text)) {
    outline.set(name, `${before ?? ''} ${text.replaceAll(';', '')}`);
  }
}

function changeText({ set, key, before, after }: ElementChange): string {
  if (before === undefined) return `${set} lacks ${key}`;
  return `${set} has ${key}, ${after === undefined ? 'which' : 'whose value'} was not written`;
}

/** nft has its own spelling for a few IPv6 addresses, and for networks of one address: `10.0.0.1` for `10.0.0.1/32`. */
function canonicalKey(key: string, type: string): string {
  const parts = key.split(' . ');
  const network = type.endsWith(' interval') ? parts.pop() : undefined;
  const spelled = parts.map((part) =>
    ipaddr.IPv6.isValid(part) ? ipaddr.parse(part).toString() : part,
  );
  if (network !== undefined) {
    spelled.push(networksOf([network], network.includes(':') ? 6 : 4)[0] ?? network);
  }
  return spelled.join(' . ');
}
