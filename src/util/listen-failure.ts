import { open, readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import ipaddr from 'ipaddr.js';
import { KpngError, messageOf, type ErrorCode } from '../errors.ts';
import { familyOf, isWildcard } from './family.ts';
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

/**
 * Why a server cannot listen. The message is only the reason: the program that listens on the TCP `address`, if one is
 * given and the program is found, or the system's message.
 */
export async function listenFailure(
  cause: NodeJS.ErrnoException,
  address?: HostPort,
): Promise<KpngError> {
  const { code = '' } = cause;
  const target = address && { protocol: 'TCP' as const, address: address.host, port: address.port };
  const holder = target && code === 'EADDRINUSE' ? await socketHolder(target) : undefined;
  const reason = holder === undefined ? messageOf(cause) : `${holder} listens there`;
  return new KpngError(listenCode(code), reason, { cause });
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
  // A table may be missing, as without IPv6.
  const [inode = '', user] = (await findSocket(target, root).catch(() => undefined)) ?? [];
  if (user === undefined) return undefined;
  const pid = await findProcess(`socket:[${inode}]`, root);
  if (pid === undefined) return `a program of user ${user}`;
  if (pid === String(process.pid)) return `this process (${pid})`;
  const name = await readFile(join(root, pid, 'comm'), 'utf8').catch(() => 'a program');
  return `${name.trim()} (process ${pid})`;
}

/** The inode and the user of a socket. */
async function findSocket(
  target: BindAddress,
  root: string,
): Promise<readonly [inode: string, user: string] | undefined> {
  const protocol = target.protocol.toLowerCase();
  for (const table of [protocol, `${protocol}6`]) {
    const file = await open(join(root, 'net', table));
    try {
      for await (const line of file.readLines({ end: MAX_TABLE, encoding: 'latin1' })) {
        const [, hex = '', port = '', state, user = '', inode = ''] = ROW.exec(line) ?? [];
        if (state !== STATES[target.protocol] || Number.parseInt(port, 16) !== target.port)
          continue;
        if (conflicts(addressOf(hex), target.address)) return [inode, user];
      }
    } finally {
      await file.close();
    }
  }
  return undefined;
}

/** A row of a table: local address and port, state, user, inode. */
const ROW = /^ *\d+: ((?:[0-9A-F]{8}){1,4}):(\S+) \S+ (\S+) \S+ \S+ \S+ +(\d+) +\d+ (\d+)/;
/** The states LISTEN, and that of an unconnected socket. */
const STATES = { TCP: '0A', UDP: '07' };

/** Whether a socket that is bound to an address of the port keeps another one from being bound. */
function conflicts(bound: string, address: string): boolean {
  if (address === '' || bound === '::') return true;
  if (isWildcard(address) || bound === '0.0.0.0') return familyOf(address) === familyOf(bound);
  return bound === ipaddr.parse(address).toString();
}

/** An address as the tables have it: four-byte words in host byte order. */
function addressOf(hex: string): string {
  const address = ipaddr.fromByteArray([...Buffer.from(hex, 'hex').swap32()]);
  return ipaddr.process(address.toString()).toString();
}

/** The process that has a link to a socket. This process, with its many sockets, is checked last. */
async function findProcess(link: string, root: string): Promise<string | undefined> {
  const own = String(process.pid);
  const pids = (await readdir(root).catch(() => [])).filter((name) => /^\d+$/.test(name));
  let links = 0;
  for (const pid of [...pids.filter((name) => name !== own), own]) {
    const folder = join(root, pid, 'fd');
    for (const descriptor of await readdir(folder).catch(() => [])) {
      links += 1;
      if (links > MAX_LINKS) return undefined;
      const target = await readlink(join(folder, descriptor)).catch(() => '');
      if (target === link) return pid;
    }
  }
  return undefined;
}
