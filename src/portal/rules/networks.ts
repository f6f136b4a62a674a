import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Family } from '../../util/family.ts';

/**
 * The networks of one family among `texts` (addresses count as networks of one), with their host
 * bits cleared and without those that lie within another one: the kernel refuses to have two
 * overlapping intervals in a set. What is neither is left out. Sorted by size, the largest first, then by
 * address.
 */
export function networksOf(texts: readonly string[], family: Family): string[] {
  const sorted = texts
    .map((text) => parseNetwork(text))
    .filter((network) => network !== undefined)
    .filter((network) => network.family === family)
    .sort((a, b) => compare(a.start, b.start) || a.bits - b.bits);
  const kept: Network[] = [];
  for (const network of sorted) {
    // A network that contains this one comes before it, and nothing that does not lie within that one between.
    const last = kept.at(-1);
    if (last === undefined || !network.address.match(last.address, last.bits)) kept.push(network);
  }
  return kept
    .sort((a, b) => a.bits - b.bits)
    .map(({ address, bits }) => `${address.toString()}/${bits}`);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

interface Network {
  readonly family: Family;
  readonly address: ipaddr.IPv4 | ipaddr.IPv6;
  readonly bits: number;
  /** The bytes of the address; sorts as the addresses do. */
  readonly start: string;
}

function parseNetwork(text: string): Network | undefined {
  const slash = text.indexOf('/');
  const host = slash === -1 ? text : text.slice(0, slash);
  const version = isIP(host);
  if (version === 0 || host.includes('%')) return undefined;
  const longest = version === 4 ? 32 : 128;
  const digits = slash === -1 ? String(longest) : text.slice(slash + 1);
  const bits = Number(digits);
  if (!/^\d{1,3}$/.test(digits) || bits > longest) return undefined;
  const cidr = `${host}/${bits}`;
  const address =
    version === 4
      ? ipaddr.IPv4.networkAddressFromCIDR(cidr)
      : ipaddr.IPv6.networkAddressFromCIDR(cidr);
  const start = Buffer.from(address.toByteArray()).toString('latin1');
  return { family: version === 4 ? 4 : 6, address, bits, start };
}
