import { open, readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import ipaddr from 'ipaddr.js';
import { messageOf, type ErrorCode } from '../errors.ts';
import type { HostPort } from './host-port.ts';

const CODES: Readonly<Record<string, ErrorCode>> = {
  EADDRNOTAVAIL: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
  EADDRINUSE: 'KPNG_LISTEN_ADDRESS_IN_USE',
  EACCES: 'KPNG_LISTEN_PERMISSION',
  EPERM: 'KPNG_LISTEN_PERMISSION',
  EMFILE: 'KPNG_LIMIT_REACHED',
  ENFILE: 'KPNG_LIMIT_REACHED',
};

/** The error code for a failed listen, such as with `EADDRINUSE`. */
export function listenCode(cause: string): ErrorCode {
  return CODES[cause] ?? 'KPNG_LISTEN_FAILED';
}

/** Why a TCP address cannot be listened on. */
export interface ListenFailure {
  readonly code: ErrorCode;
  /** The program that listens there, or the system's message. */
  readonly reason: string;
  readonly cause: Error;
}

export async function listenFailure(
  cause: NodeJS.ErrnoException,
  { host: address, port }: HostPort,
): Promise<ListenFailure> {
  const { code = '' } = cause;
  const holder =
    code === 'EADDRINUSE' ? await socketHolder({ protocol: 'TCP', address, port }) : undefined;
  const reason = holder === undefined ? messageOf(cause) : `${holder} listens there`;
  return { code: listenCode(code), reason, cause };
}

/** Where a socket could not be bound. */
export interface BindAddress {
  readonly protocol: 'TCP' | 'UDP';
  /** IP literal; empty: every address. */
  readonly address: string;
  readonly port: number;
}

/** Maximum number of process links to check. */
const MAX_LINKS = 100_000;
/** Maximum number of bytes read of a socket table. Listening TCP sockets come first in it. */
const MAX_TABLE = 4 * 1024 * 1024;
const READ_BYTES = 64 * 1024;

/**
 * Finds the process that listens where a socket could not be bound, as `ss -p` does: from the kernel's socket tables
 * and the descriptors of the processes. Resolves with `nginx (process 4711)`, or the user if this process may not
 * inspect others. Linux only; undefined elsewhere, and when no socket is found. For messages: it may take some
 * milliseconds, and by then the socket may have been closed. Never rejects.
 */
export async function socketHolder(
  target: BindAddress,
  root = '/proc',
): Promise<string | undefined> {
  const found = await findSocket(target, root);
  if (found === undefined) return undefined;
  const { inode, user } = found;
  const pid = await findProcess(`socket:[${inode}]`, root);
  if (pid === undefined) return `a program of user ${user}`;
  if (pid === String(process.pid)) return `this process (${pid})`;
  const name = await readFile(join(root, pid, 'comm'), 'utf8').catch(() => 'a program');
  return `${name.trim()} (process ${pid})`;
}

interface Socket {
  readonly inode: string;
  readonly user: number;
}

async function findSocket(target: BindAddress, root: string): Promise<Socket | undefined> {
  const name = target.protocol.toLowerCase();
  for (const table of [name, `${name}6`]) {
    try {
      for await (const rows of rowsOf(join(root, 'net', table))) {
        const found = socketAmong(rows, target);
        if (found !== undefined) return found;
      }
    } catch {
      // The table is missing, as without IPv6.
    }
  }
  return undefined;
}

function socketAmong(rows: readonly string[], target: BindAddress): Socket | undefined {
  for (const row of rows) {
    const [, local = '', , state, , , , user, , inode = ''] = row.trim().split(/\s+/);
    if (state !== LISTENING[target.protocol]) continue;
    if (conflicts(local, target)) return { inode, user: Number(user) };
  }
  return undefined;
}

/** TCP: LISTEN. UDP: an unconnected socket. */
const LISTENING = { TCP: '0A', UDP: '07' } as const;

/** Whether a socket keeps another one from being bound to that address. */
function conflicts(local: string, { address, port }: BindAddress): boolean {
  const [hex = '', digits = ''] = local.split(':');
  if (Number.parseInt(digits, 16) !== port) return false;
  const bound = readHex(hex);
  if (bound === undefined) return false;
  if (address === '' || /^[0:.]+$/.test(address)) {
    return address === '' || address.includes(':') === bound.includes(':') || bound === '::';
  }
  if (bound === '::') return true;
  if (bound === '0.0.0.0') return !address.includes(':');
  return bound === ipaddr.parse(address).toString();
}

/** An address as the tables have it: four-byte words in host byte order. */
function readHex(hex: string): string | undefined {
  if (!/^(?:[0-9A-F]{8}){1,4}$/.test(hex)) return undefined;
  const address = ipaddr.fromByteArray([...Buffer.from(hex, 'hex').swap32()]);
  return address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress()
    ? address.toIPv4Address().toString()
    : address.toString();
}

/** The rows of a table, some at a time. The kernel hands over 4 KiB with each read, so all reads share a buffer. */
async function* rowsOf(path: string): AsyncGenerator<readonly string[]> {
  const file = await open(path);
  try {
    const buffer = Buffer.alloc(READ_BYTES);
    let rest = '';
    let size = 0;
    while (size <= MAX_TABLE) {
      const { bytesRead } = await file.read(buffer, 0);
      if (bytesRead === 0) break;
      size += bytesRead;
      const rows = (rest + buffer.toString('latin1', 0, bytesRead)).split('\n');
      rest = rows.pop() ?? '';
      yield rows;
    }
    yield [rest];
  } finally {
    await file.close();
  }
}

/** The process that has a link to a socket. This process, with its many sockets, is checked last. */
async function findProcess(link: string, root: string): Promise<string | undefined> {
  const own = String(process.pid);
  const names = (await readdir(root).catch(() => [])).filter((name) => /^\d+$/.test(name));
  const pids = [...names.filter((name) => name !== own), ...names.filter((name) => name === own)];
  let links = 0;
  for (const pid of pids) {
    const folder = join(root, pid, 'fd');
    const descriptors = await readdir(folder).catch(() => []);
    for (const descriptor of descriptors) {
      links += 1;
      if (links > MAX_LINKS) return undefined;
      const target = await readlink(join(folder, descriptor)).catch(() => '');
      if (target === link) return pid;
    }
  }
  return undefined;
}
