import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Family } from '../../util/family.ts';

/**
 * The networks of one family among `texts` (addresses count as networks of one), with their host
 * bits cleared and without those that lie within another one: the kernel refuses to have two
 * overlapping intervals in a set. What is neither is left out. Sorted by size, the largest first.
 */
export function networksOf(texts: readonly string[], family: Family): string[] {
  const parsed = texts
    .map((text) => parseNetwork(text))
    .filter((network) => network?.family === family)
    .filter((network) => network !== undefined)
    .sort((a, b) => a.bits - b.bits);
  const kept: Network[] = [];
  for (const network of parsed) {
    if (!kept.some((larger) => network.address.match(larger.address, larger.bits))) {
      kept.push(network);
    }
  }
  return kept.map(({ address, bits }) => `${address.toString()}/${bits}`);
}

interface Network {
  readonly family: Family;
  readonly address: ipaddr.IPv4 | ipaddr.IPv6;
  readonly bits: number;
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
  return version === 4
    ? { family: 4, address: ipaddr.IPv4.networkAddressFromCIDR(cidr), bits }
    : { family: 6, address: ipaddr.IPv6.networkAddressFromCIDR(cidr), bits };
}
