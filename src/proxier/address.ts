import { isIPv4, isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';

/** In canonical form: unspecified, multicast, broadcast. Linux binds TCP listeners to the latter two. */
const NOT_ONE_HOST = /^(?:0\.0\.0\.0|(?:22[4-9]|23\d)\..*|255\.255\.255\.255|::|ff[\da-f]{2}:.*)$/;

/** The canonical text: short IPv6, IPv4-mapped as IPv4. Undefined for anything but the address of one host. */
export function canonicalAddress(text: string): string | undefined {
  if (isIPv4(text)) return NOT_ONE_HOST.test(text) ? undefined : text;
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const address = ipaddr.IPv6.parse(text);
  if (address.isIPv4MappedAddress()) return canonicalAddress(address.toIPv4Address().toString());
  const short = address.toString();
  return NOT_ONE_HOST.test(short) ? undefined : short;
}

/** A network, trimmed; undefined for an invalid one. */
export function canonicalNetwork(text: string): string | undefined {
  const trimmed = text.trim();
  return ipaddr.isValidCIDR(trimmed) ? trimmed : undefined;
}

export { isPort } from '../util/port-range.ts';
