/** Parses the output of `nft list table`, and compares it with the written table. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import ipaddr from 'ipaddr.js';
import type { RuleConfig } from '../rules/backend.ts';
import type { Elements } from '../rules/elements.ts';
import { renderTable, SET_NAMES } from './table.ts';

/** A line within a chain, set or map. */
interface ListedLine {
  readonly block: string;
  readonly text: string;
}

/** Lines parsed before yielding to other work. */
const PORTION = 1000;

/** Sets whose keys end with a network, of which nft has its own spelling: `10.0.0.1` for `10.0.0.1/32`. */
const HAS_NETWORKS = /^(?:allowed|pods|node-port-pods)[46]$/;

const HEAD = /^\s(?:chain|map|set) (\S+) \{/;

export function* linesOf(listing: string): Generator<ListedLine> {
  let block = '';
  let begin = 0;
  while (begin < listing.length) {
    const end = listing.indexOf('\n', begin);
    const line = listing.slice(begin, end === -1 ? listing.length : end);
    begin = end === -1 ? listing.length : end + 1;
    const [, head] = HEAD.exec(line) ?? [];
    if (head !== undefined) block = head;
    else if (line.startsWith('\t}')) block = '';
    else if (block !== '') yield { block, text: line.trim() };
  }
}

/** The elements in a line of a set or map, as key and value; the value is empty in a set. */
export function* elementsIn(text: string): Generator<[key: string, value: string]> {
  if (/^(?:type|flags|size) /.test(text)) return;
  for (const part of text.replace(/^elements = \{|\}$/g, '').split(',')) {
    const [key = '', value = ''] = part.trim().split(' : ');
    if (key !== '') yield [key, value];
  }
}

/**
 * The first difference between a listing and what was written. Elements are compared one by one, rules and networks
 * by number, as nft lists them in a different form.
 */
export async function differenceIn(
  listing: string,
  config: RuleConfig,
  elements: Elements,
): Promise<string | undefined> {
  const counts = new Map<string, number>();
  const wanted = new Map<string, Map<string, string>>();
  for (const { set, key, value } of elements) {
    const values = wanted.get(set);
    if (values === undefined) wanted.set(set, new Map([[key, value]]));
    else values.set(key, value);
  }
  let portion = 0;
  for (const { block, text } of linesOf(listing)) {
    portion += 1;
    if (portion % PORTION === 0) await nextTurn();
    if (SETS.has(block)) {
      const values = wanted.get(block);
      for (const [key, value] of elementsIn(text)) {
        add(counts, block, 1);
        if (HAS_NETWORKS.test(block)) continue;
        const now = values?.get(key) ?? values?.get(canonicalKey(key));
        if (now !== value) return `${block} has ${key}, which was not written`;
      }
    } else if (block.startsWith('node-networks')) add(counts, block, [...elementsIn(text)].length);
    else add(counts, block, 1);
  }
  return missing(counts, wantedCounts(config, elements));
}

function missing(
  counts: ReadonlyMap<string, number>,
  wanted: ReadonlyMap<string, number>,
): string | undefined {
  for (const [block, count] of wanted) {
    const there = counts.get(block) ?? 0;
    if (there < count) return `${count - there} of ${count} entries of ${block} are missing`;
    if (there > count) return `${block} has ${there - count} entries that were not written`;
  }
  return undefined;
}

function wantedCounts(config: RuleConfig, elements: Elements): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { block, text } of linesOf(renderTable('table', config))) {
    if (block.startsWith('node-networks')) add(counts, block, [...elementsIn(text)].length);
    else if (!SETS.has(block)) add(counts, block, 1);
  }
  for (const set of SET_NAMES) counts.set(set, elements.size(set));
  return counts;
}

function add(counts: Map<string, number>, block: string, count: number): void {
  counts.set(block, (counts.get(block) ?? 0) + count);
}

const SETS: ReadonlySet<string> = new Set(SET_NAMES);

/** nft has its own spelling for a few IPv6 addresses. */
function canonicalKey(key: string): string {
  const [address = '', ...rest] = key.split(' . ');
  return ipaddr.IPv6.isValid(address)
    ? [ipaddr.parse(address).toString(), ...rest].join(' . ')
    : key;
}
