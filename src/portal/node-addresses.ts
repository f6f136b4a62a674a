/** What rules and listeners need to know of the addresses and interfaces of this host. */
import { existsSync, readdirSync } from 'node:fs';
import { isIP } from 'node:net';
import { join } from 'node:path';
import ipaddr from 'ipaddr.js';
import { KpngError } from '../errors.ts';
import { FAMILIES, type Family, familyOf, isWildcard, WILDCARD } from '../util/family.ts';
import type { HostAddress } from '../util/host-addresses.ts';
import { compare } from './claims.ts';
import type { RuleConfig } from './rules/backend.ts';

/** Whether packets on bridges of this host may pass rules: `br_netfilter` is loaded, and there is a bridge. */
export function hasBridges(root = '/'): boolean {
  const interfaces = join(root, 'sys/class/net');
  // Some containers have no /sys.
  if (!existsSync(join(root, 'proc/sys/net/bridge')) || !existsSync(interfaces)) return false;
  return readdirSync(interfaces).some((name) => existsSync(join(interfaces, name, 'bridge')));
}

/**
 * The addresses to open node ports on. Each item of `wanted` is a network, an address, or one of kube-proxy's words:
 *
 * - `all`: every address, as one wildcard for each family that the host has;
 * - `localhost`: `127.0.0.1`, and `::1` where the host has it;
 * - `primary`: the first address of each family that is neither loopback nor link-local;
 * - a network (`10.0.0.0/8`): the host's addresses in it;
 * - an address: that one, whether the host currently has it or not.
 *
 * No item means `all`. Throws a RangeError that names an invalid item.
 */
export function nodePortAddresses(
  wanted: readonly string[],
  host: readonly HostAddress[],
): string[] {
  const items = wanted.length === 0 ? ['all'] : wanted;
  const found = new Set(items.flatMap((item) => resolveItem(item, host)));
  // The wildcard conflicts with single addresses, and covers them.
  const isCovered = (each: string): boolean =>
    !isWildcard(each) && found.has(WILDCARD[familyOf(each)]);
  return [...found].filter((each) => !isCovered(each));
}

function resolveItem(item: string, host: readonly HostAddress[]): string[] {
  const hasIPv6 = host.some(({ address }) => isIP(address) === 6);
  if (item === 'all') return hasIPv6 ? ['0.0.0.0', '::'] : ['0.0.0.0'];
  if (item === 'localhost') return hasIPv6 ? ['127.0.0.1', '::1'] : ['127.0.0.1'];
  if (item === 'primary') {
    const isUsable = ({ address, loopback }: HostAddress) =>
      !loopback && ipaddr.parse(address).range() !== 'linkLocal';
    const usable = host.filter(isUsable).map(({ address }) => address);
    return FAMILIES.flatMap((family) => usable.find((each) => isIP(each) === family) ?? []);
  }
  if (isIP(item) !== 0) return [ipaddr.parse(item).toString()];
  if (!ipaddr.isValidCIDR(item)) {
    throw new RangeError(`${JSON.stringify(item)} is neither a network nor an address`);
  }
  const [network, bits] = ipaddr.parseCIDR(item);
  return host
    .map(({ address }) => ipaddr.parse(address))
    .filter((address) => address.kind() === network.kind() && address.match(network, bits))
    .map((address) => address.toString());
}

/**
 * The networks of one family, masked, without those contained in another, as the kernel refuses overlaps. Addresses
 * count as networks; anything else is left out. Sorted by size, largest first, then address.
 */
export function networksOf(texts: readonly string[], family: Family): string[] {
  const sorted = texts
    .flatMap((text) => parseNetwork(text, family))
    .sort((a, b) => compare(a.start, b.start) || a.bits - b.bits);
  const kept: typeof sorted = [];
  for (const network of sorted) {
    // Sorted like this, a containing network comes right before the networks within it.
    const last = kept.at(-1);
    if (last === undefined || !network.address.match(last.address, last.bits)) kept.push(network);
  }
  return kept
    .sort((a, b) => a.bits - b.bits)
    .map(({ address, bits }) => `${address.toString()}/${bits}`);
}

/** None if it is invalid or of another family. `start`: the bytes of the address, which sort as addresses do. */
function parseNetwork(text: string, family: Family) {
  const [, host = '', digits] = /^([^%/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const [longest, addresses] = family === 4 ? [32, ipaddr.IPv4] : [128, ipaddr.IPv6];
  const bits = Number(digits ?? longest);
  if (isIP(host) !== family || bits > longest) return [];
  const address: ipaddr.IPv4 | ipaddr.IPv6 = addresses.networkAddressFromCIDR(`${host}/${bits}`);
  return [{ address, bits, start: Buffer.from(address.toByteArray()).toString('latin1') }];
}

/** The families that the host has. A loopback address is sufficient: it shows that the kernel supports the family. */
export function hostFamilies(host: readonly HostAddress[]): Family[] {
  return FAMILIES.filter((family) => host.some(({ address }) => familyOf(address) === family));
}

/** Where proxy ports listen, by family, for a `--bind-address`. Throws KPNG_USAGE for a loopback address. */
export function bindAddresses(
  bindAddress: string,
  families: readonly Family[],
): Partial<Record<Family, string>> {
  const given = ipaddr.parse(bindAddress);
  if (given.range() === 'loopback') {
    const why = 'packets from elsewhere cannot be sent to a loopback address';
    throw new KpngError('KPNG_USAGE', `--bind-address ${bindAddress}: ${why}`);
  }
  const own = familyOf(bindAddress);
  return Object.fromEntries(
    families.map((family) => [family, family === own ? given.toString() : WILDCARD[family]]),
  );
}

/**
 * The host address that packets are sent to, by family: the bind address of proxy ports, else the first that is
 * neither loopback nor link-local. It stays while the host has it.
 *
 * Used with `dnat to` instead of `redirect`, which goes to the incoming interface's address, which pod interfaces of
 * Calico lack, and to 127.0.0.1 for the host's own packets, from where a wildcard UDP socket does not answer.
 */
export function targetsOf(
  bound: Readonly<Partial<Record<Family, string>>>,
  host: readonly HostAddress[],
  previous: RuleConfig['targets'] | undefined,
): RuleConfig['targets'] {
  const primary = nodePortAddresses(['primary'], host);
  const targetOf = (family: Family): string | undefined => {
    const own = bound[family];
    if (own === undefined || !isWildcard(own)) return own;
    const kept = previous?.[family];
    if (kept !== undefined && host.some(({ address }) => address === kept)) return kept;
    return primary.find((address) => familyOf(address) === family);
  };
  return { 4: targetOf(4), 6: targetOf(6) };
}

/** `--nodeport-addresses` as networks. Throws a RangeError for an invalid item. */
export function nodePortNetworks(
  wanted: readonly string[],
  host: readonly HostAddress[],
): RuleConfig['nodePortNetworks'] {
  const texts = wanted.flatMap((item) =>
    ipaddr.isValidCIDR(item)
      ? [item]
      : nodePortAddresses([item], host).map((each) => (isWildcard(each) ? `${each}/0` : each)),
  );
  if (wanted.length === 0 || wanted.includes('all')) texts.push('0.0.0.0/0', '::/0');
  return { 4: networksOf(texts, 4), 6: networksOf(texts, 6) };
}
