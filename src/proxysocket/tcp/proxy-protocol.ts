/**
 * The PROXY protocol of HAProxy, versions 1 and 2: a header ahead of a connection's bytes names its client.
 * https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt
 */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { ProxyProtocolVersion } from '../spec.ts';
import { MAX_HEAD_BYTES, type KnownAddress } from './transport.ts';

const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
/** Version 2, and whether the header is about a client or about the sender itself. */
const LOCAL = 0x20;
const PROXY = 0x21;
const TCP4 = 0x11;
const TCP6 = 0x21;

/** The header for a client. Marks both addresses as unknown if either is, as when the client has left. */
export function proxyHeader(
  version: ProxyProtocolVersion,
  source: KnownAddress,
  destination: KnownAddress,
): Buffer {
  const [from, to] = [bytesOf(source), bytesOf(destination)];
  if (from === undefined || to === undefined || from.length !== to.length) {
    if (version === 1) return Buffer.from('PROXY UNKNOWN\r\n', 'latin1');
    return Buffer.from([...SIGNATURE, LOCAL, 0, 0, 0]);
  }
  const ports = [source.port ?? 0, destination.port ?? 0];
  if (version === 1) {
    const [one, other] = [from, to].map((bytes) => ipaddr.fromByteArray(bytes).toString());
    const words = [`TCP${from.length === 4 ? 4 : 6}`, one, other, ...ports];
    return Buffer.from(`PROXY ${words.join(' ')}\r\n`, 'latin1');
  }
  const length = 2 * from.length + 4;
  const protocol = from.length === 4 ? TCP4 : TCP6;
  const portBytes = ports.flatMap((port) => [port >> 8, port & 255]);
  return Buffer.from([...SIGNATURE, PROXY, protocol, 0, length, ...from, ...to, ...portBytes]);
}

/** Four or sixteen bytes. An IPv6 socket writes IPv4 peers as mapped addresses, which count as IPv4. */
function bytesOf({ address }: KnownAddress): number[] | undefined {
  return address === undefined
    ? undefined
    : ipaddr.process(address.split('%')[0] ?? '').toByteArray();
}

type Parsed =
  /** The bytes may be the beginning of a header. */
  'incomplete' | 'invalid' | { readonly length: number; readonly source: KnownAddress | undefined };

const MAX_LINE = 107;
const LINE =
  /^PROXY (?:UNKNOWN(?: [^\r\n]*)?|(TCP4|TCP6) ([\d.a-fA-F:]+) ([\d.a-fA-F:]+) (\d{1,5}) (\d{1,5}))\r\n/;
const LINE_START = Buffer.from('PROXY ', 'latin1');

export function parseProxyHeader(bytes: Uint8Array): Parsed {
  if (beginsAs(SIGNATURE, bytes)) return parseBinary(Buffer.from(bytes));
  return beginsAs(LINE_START, bytes) ? parseLine(bytes) : 'invalid';
}

/** As far as there are bytes. */
function beginsAs(start: Buffer, bytes: Uint8Array): boolean {
  return start.subarray(0, bytes.length).equals(bytes.subarray(0, start.length));
}

function parseLine(bytes: Uint8Array): Parsed {
  const text = Buffer.from(bytes.subarray(0, MAX_LINE)).toString('latin1');
  const [line, protocol, address = '', destination = '', ...ports] = LINE.exec(text) ?? [];
  if (line === undefined) {
    return bytes.length >= MAX_LINE || text.includes('\n') ? 'invalid' : 'incomplete';
  }
  if (protocol === undefined) return { length: line.length, source: undefined };
  const family = protocol === 'TCP4' ? 4 : 6;
  const [port = 0, other = 0] = ports.map(Number);
  const isValid = isIP(address) === family && isIP(destination) === family;
  if (!isValid || port > 65_535 || other > 65_535) return 'invalid';
  return { length: line.length, source: { address, port } };
}

function parseBinary(bytes: Buffer): Parsed {
  if (bytes.length < 16) return 'incomplete';
  const command = bytes.readUInt8(12);
  const length = 16 + bytes.readUInt16BE(14);
  if ((command !== LOCAL && command !== PROXY) || length > MAX_HEAD_BYTES) return 'invalid';
  if (bytes.length < length) return 'incomplete';
  const size = { [TCP4]: 4, [TCP6]: 16 }[bytes.readUInt8(13)];
  // Other protocols, such as Unix sockets, have no address that would mean anything here.
  if (command === LOCAL || size === undefined) return { length, source: undefined };
  if (length < 16 + 2 * size + 4) return 'invalid';
  const given = ipaddr.fromByteArray([...bytes.subarray(16, 16 + size)]).toString();
  const address = ipaddr.process(given).toString();
  return { length, source: { address, port: bytes.readUInt16BE(16 + 2 * size) } };
}
