import { BlockList, isIPv4, isIPv6 } from 'node:net';
import type { IPSet } from '../api/generated/localv1/api.ts';

/** Sorted as strings without duplicates, as the wire format has the lists of an IPSet. */
export function sortedUnique(texts: readonly string[]): string[] {
  if (texts.length < 2) return texts.slice();
  const unique = new Set(texts);
  return [...unique].sort();
}

const MAPPED = new BlockList();
MAPPED.addSubnet('::ffff:0:0', 96, 'ipv6');

/** Whether the text is an IPv6 literal that means an IPv4 address, such as `::ffff:192.0.2.1`. */
export function isMappedIPv4(text: string): boolean {
  return /ffff/i.test(text) && isIPv6(text) && !text.includes('%') && MAPPED.check(text, 'ipv6');
}

/**
 * The IPSet of addresses of both families. As in kpng, the text of an address is kept as it is, an IPv4-mapped
 * address counts as IPv4, and anything else is left out.
 */
export function ipSetOf(addresses: Iterable<string>): IPSet {
  const v4: string[] = [];
  const v6: string[] = [];
  for (const address of addresses) {
    if (isIPv4(address) || isMappedIPv4(address)) v4.push(address);
    else if (isIPv6(address) && !address.includes('%')) v6.push(address);
  }
  return { v4: sortedUnique(v4), v6: sortedUnique(v6) };
}

/** The addresses of both sets; undefined when there is neither. */
export function mergeIPSets(a: IPSet | undefined, b: IPSet | undefined): IPSet | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return { v4: sortedUnique([...a.v4, ...b.v4]), v6: sortedUnique([...a.v6, ...b.v6]) };
}
