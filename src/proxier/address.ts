import { isIPv4, isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';

/**
 * The one way to write an address: IPv6 in its short form, IPv4 inside IPv6 as IPv4. Undefined for
 * what is not the address of one host: other text, a zone, the unspecified addresses.
 */
export function canonicalAddress(text: string): string | undefined {
  if (isIPv4(text)) return text === '0.0.0.0' ? undefined : text;
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const address = ipaddr.IPv6.parse(text);
  if (address.isIPv4MappedAddress()) return canonicalAddress(address.toIPv4Address().toString());
  const short = address.toString();
  return short === '::' ? undefined : short;
}

/** A network with the blanks around it removed; undefined for what is none. */
export function canonicalNetwork(text: string): string | undefined {
  const trimmed = text.trim();
  return ipaddr.isValidCIDR(trimmed) ? trimmed : undefined;
}

/** Whether a number can be the port of a socket. */
export function isPort(port: number): boolean {
  return Number.isInteger(port) && port >= 1 && port <= 65_535;
}
