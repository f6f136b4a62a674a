import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { HostAddress } from '../util/host-addresses.ts';

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
  const found = new Set<string>();
  for (const item of wanted.length === 0 ? ['all'] : wanted) {
    for (const address of resolveItem(item, host)) found.add(address);
  }
  for (const wildcard of ['0.0.0.0', '::']) {
    if (!found.has(wildcard)) continue;
    // The wildcard conflicts with single addresses, and covers them.
    for (const address of found) {
      if (address !== wildcard && isIP(address) === isIP(wildcard)) found.delete(address);
    }
  }
  return [...found];
}

/** Whether the result depends on the host's current addresses. */
export function dependsOnHost(wanted: readonly string[]): boolean {
  return wanted.some((item) => isIP(item) === 0 && item !== 'all');
}

function resolveItem(item: string, host: readonly HostAddress[]): string[] {
  const hasIPv6 = host.some(({ address }) => isIP(address) === 6);
  if (item === 'all') return hasIPv6 ? ['0.0.0.0', '::'] : ['0.0.0.0'];
  if (item === 'localhost') return hasIPv6 ? ['127.0.0.1', '::1'] : ['127.0.0.1'];
  if (item === 'primary') return primary(host);
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

function primary(host: readonly HostAddress[]): string[] {
  const usable = host.filter(
    ({ address, loopback }) => !loopback && ipaddr.parse(address).range() !== 'linkLocal',
  );
  return [4, 6].flatMap((family) => {
    const first = usable.find(({ address }) => isIP(address) === family);
    return first === undefined ? [] : [first.address];
  });
}
