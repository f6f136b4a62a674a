import { isIPv4, SocketAddress as NodeAddress } from 'node:net';
import { networkInterfaces } from 'node:os';
import ipaddr from 'ipaddr.js';
import { AF_INET, AF_INET6, SOCKADDR_IN6_BYTES, SOCKADDR_IN_BYTES } from './abi.ts';

export interface SocketAddress {
  /** IP literal without brackets; link-local IPv6 addresses with their zone. */
  readonly address: string;
  readonly port: number;
}

/** Returns the length of the `sockaddr`. Throws for unknown zones, and for anything but an IP literal. */
export function writeSockaddr(
  view: DataView,
  offset: number,
  { address, port }: SocketAddress,
): number {
  const isFour = isIPv4(address);
  const [literal = '', zone] = address.split('%');
  view.setUint16(offset, isFour ? AF_INET : AF_INET6, true);
  view.setUint16(offset + 2, port);
  view.setUint32(offset + 4, 0);
  const at = offset + (isFour ? 4 : 8);
  for (const [index, byte] of ipaddr.parse(literal).toByteArray().entries()) {
    view.setUint8(at + index, byte);
  }
  if (isFour) view.setBigUint64(offset + 8, 0n);
  else view.setUint32(offset + 24, zone === undefined ? 0 : zoneIndex(zone), true);
  return isFour ? SOCKADDR_IN_BYTES : SOCKADDR_IN6_BYTES;
}

/** Reads a `sockaddr`; undefined when it is neither IPv4 nor IPv6. */
export function readSockaddr(view: DataView, offset: number): SocketAddress | undefined {
  const family = view.getUint16(offset, true);
  const port = view.getUint16(offset + 2);
  if (family === AF_INET) {
    const bits = view.getUint32(offset + 4);
    const address = `${bits >>> 24}.${(bits >>> 16) & 255}.${(bits >>> 8) & 255}.${bits & 255}`;
    return { address, port };
  }
  if (family !== AF_INET6) return undefined;
  const groups = Array.from({ length: 8 }, (_, index) => view.getUint16(offset + 8 + index * 2));
  const long = groups.map((group) => group.toString(16)).join(':');
  // The shortest form, as the C library writes it.
  const { address } = new NodeAddress({ address: long, family: 'ipv6' });
  const scope = view.getUint32(offset + 24, true);
  const isLinkLocal = (Number(groups[0]) & 0xffc0) === 0xfe80;
  return { address: isLinkLocal && scope !== 0 ? `${address}%${zoneName(scope)}` : address, port };
}

function zones(): (readonly [name: string, index: number])[] {
  const interfaces = Object.entries(networkInterfaces());
  return interfaces.flatMap(([name, addresses = []]) =>
    addresses.flatMap((each) => (each.family === 'IPv6' ? [[name, each.scopeid] as const] : [])),
  );
}

function zoneIndex(zone: string): number {
  if (/^\d+$/.test(zone)) return Number(zone);
  const found = zones().find(([name, index]) => name === zone && index > 0);
  if (found !== undefined) return found[1];
  throw new RangeError(
    `the host has no interface ${JSON.stringify(zone)} with a link-local address`,
  );
}

function zoneName(wanted: number): string {
  return zones().find(([, index]) => index === wanted)?.[0] ?? String(wanted);
}
