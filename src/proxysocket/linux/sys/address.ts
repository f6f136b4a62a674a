import { isIPv4, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { AF_INET, AF_INET6, SOCKADDR_IN6_BYTES, SOCKADDR_IN_BYTES, SOCKADDR_BYTES } from './abi.ts';
import type { FfiModule } from './library.ts';
import { Pinned } from './memory.ts';

/** An address as sockets have it. */
export interface SocketAddress {
  /** IP literal without brackets; link-local IPv6 addresses with their zone. */
  readonly address: string;
  readonly port: number;
}

/**
 * Writes a `sockaddr` and returns its length. Throws a RangeError for what is no IP literal, and for a
 * zone that the host does not have.
 */
export function writeSockaddr(
  view: DataView,
  offset: number,
  { address, port }: SocketAddress,
): number {
  view.setUint16(offset + 2, port);
  if (isIPv4(address)) {
    view.setUint16(offset, AF_INET, true);
    for (const [index, part] of address.split('.').entries()) {
      view.setUint8(offset + 4 + index, Number(part));
    }
    view.setBigUint64(offset + 8, 0n);
    return SOCKADDR_IN_BYTES;
  }
  const [literal = '', zone] = address.split('%');
  if (!isIPv6(literal)) throw new RangeError(`${JSON.stringify(address)} is not an IP address`);
  view.setUint16(offset, AF_INET6, true);
  view.setUint32(offset + 4, 0);
  for (const [index, group] of groupsOf(literal).entries()) {
    view.setUint16(offset + 8 + index * 2, group);
  }
  view.setUint32(offset + 24, zone === undefined ? 0 : zoneIndex(zone), true);
  return SOCKADDR_IN6_BYTES;
}

/** Reads a `sockaddr`; undefined when it is neither IPv4 nor IPv6. */
export function readSockaddr(view: DataView, offset: number): SocketAddress | undefined {
  const family = view.getUint16(offset, true);
  const port = view.getUint16(offset + 2);
  if (family === AF_INET) return { address: ipv4Text(view, offset + 4), port };
  if (family !== AF_INET6) return undefined;
  const text = ipv6Text(view, offset + 8);
  const scope = view.getUint32(offset + 24, true);
  const isLinkLocal = (view.getUint16(offset + 8) & 0xffc0) === 0xfe80;
  return { address: isLinkLocal && scope !== 0 ? `${text}%${zoneName(scope)}` : text, port };
}

export function ipv4Text(view: DataView, offset: number): string {
  const bits = view.getUint32(offset);
  return `${bits >>> 24}.${(bits >>> 16) & 255}.${(bits >>> 8) & 255}.${bits & 255}`;
}

/** The shortest form, as the C library writes it. */
export function ipv6Text(view: DataView, offset: number): string {
  const groups = Array.from({ length: 8 }, (_, index) => view.getUint16(offset + index * 2));
  const [start, length] = longestZeros(groups);
  const mapped = start === 0 && (length === 6 || (length === 5 && groups[5] === 0xffff));
  if (mapped) {
    const tail = ipv4Text(view, offset + 12);
    return length === 6 ? `::${tail}` : `::ffff:${tail}`;
  }
  const hex = (from: number, to: number): string =>
    groups
      .slice(from, to)
      .map((group) => group.toString(16))
      .join(':');
  return length < 2 ? hex(0, 8) : `${hex(0, start)}::${hex(start + length, 8)}`;
}

/** Start and length of the first longest run of zero groups. */
function longestZeros(groups: readonly number[]): readonly [number, number] {
  let best: readonly [number, number] = [0, 0];
  let run = 0;
  for (const [index, group] of groups.entries()) {
    run = group === 0 ? run + 1 : 0;
    if (run > best[1]) best = [index - run + 1, run];
  }
  return best;
}

/** The eight groups of a valid IPv6 literal. */
function groupsOf(literal: string): number[] {
  const tail = /(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(literal);
  let text = literal;
  if (tail !== null) {
    const [a = 0, b = 0, c = 0, d = 0] = tail.slice(1).map(Number);
    const words = [(a << 8) | b, (c << 8) | d].map((word) => word.toString(16));
    text = literal.slice(0, tail.index) + words.join(':');
  }
  const [head = '', rest] = text.split('::');
  const parse = (part: string): number[] =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16));
  const first = parse(head);
  if (rest === undefined) return first;
  const last = parse(rest);
  const zeros = Array.from({ length: 8 - first.length - last.length }, () => 0);
  return [...first, ...zeros, ...last];
}

function zoneIndex(zone: string): number {
  if (/^\d+$/.test(zone)) return Number(zone);
  for (const each of networkInterfaces()[zone] ?? []) {
    if (each.family === 'IPv6' && each.scopeid > 0) return each.scopeid;
  }
  throw new RangeError(
    `the host has no interface ${JSON.stringify(zone)} with a link-local address`,
  );
}

function zoneName(index: number): string {
  for (const [name, addresses = []] of Object.entries(networkInterfaces())) {
    const own = addresses.some((each) => each.family === 'IPv6' && each.scopeid === index);
    if (own) return name;
  }
  return String(index);
}

/** An address in the form that the kernel takes, made once and used for many calls. */
export class Sockaddr {
  readonly memory: Pinned;
  readonly length: number;
  readonly family: 4 | 6;

  /** Throws a RangeError for what is no address. */
  constructor(ffi: FfiModule, address: SocketAddress) {
    this.memory = Pinned.alloc(ffi, SOCKADDR_BYTES);
    this.length = writeSockaddr(this.memory.view, 0, address);
    this.family = this.length === 16 ? 4 : 6;
  }
}
