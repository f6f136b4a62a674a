import type { Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import { dirname } from 'node:path';
import { KpngError, messageOf } from '../errors.ts';
import { makeDirectoryOf } from '../util/socket-file.ts';

/** Maximum length of a socket path on all systems, with room for a draft's suffix. Bytes. */
const MAX_PATH_BYTES = 92;

/**
 * Default path of the admin socket; empty: none. A named pipe on Windows; in /run for root; in the session's runtime
 * directory for other users.
 */
export function defaultSocketPath(
  platform: NodeJS.Platform = process.platform,
  uid: number | undefined = process.getuid?.(),
  env: NodeJS.ProcessEnv = process.env,
): string {
  if (platform === 'win32') return String.raw`\\.\pipe\kpng-userspace-admin`;
  if (uid === 0) return `${platform === 'linux' ? '/run' : '/var/run'}/kpng-userspace/admin.sock`;
  const runtime = env['XDG_RUNTIME_DIR'];
  return runtime === undefined || runtime === '' ? '' : `${runtime}/kpng-userspace/admin.sock`;
}

/** Whether a path is a named pipe of Windows, which has no directory. */
export function isPipe(path: string): boolean {
  return /^\\\\[.?]\\pipe\\./i.test(path);
}

/**
 * Checks that no other user can replace the socket in its directory; creates the directory, for its owner only,
 * when it is missing. Rejects with KPNG_ADMIN_SOCKET, on Windows always: Node has no sockets in directories there.
 */
export async function checkDirectory(
  path: string,
  uid: number | undefined = process.getuid?.(),
  platform: NodeJS.Platform = process.platform,
): Promise<void> {
  if (platform === 'win32') {
    throw refusal(path, String.raw`on Windows it is a named pipe, such as \\.\pipe\NAME`);
  }
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw refusal(path, `the path is longer than ${MAX_PATH_BYTES} bytes`);
  }
  const directory = dirname(path);
  let found: Stats;
  try {
    makeDirectoryOf(path);
    found = await stat(directory);
  } catch (error) {
    throw refusal(path, messageOf(error), error);
  }
  if (!found.isDirectory()) throw refusal(path, `${directory} is not a directory`);
  if (uid !== undefined && found.uid !== 0 && found.uid !== uid) {
    throw refusal(path, `${directory} belongs to user ${found.uid}, who could replace the socket`);
  }
  const othersWrite = (found.mode & 0o022) !== 0;
  const sticky = (found.mode & 0o1000) !== 0;
  if (othersWrite && !sticky) {
    const mode = (found.mode & 0o7777).toString(8).padStart(4, '0');
    throw refusal(path, `others may write to ${directory} (mode ${mode}); chmod go-w ${directory}`);
  }
}

export function refusal(path: string, why: string, cause?: unknown): KpngError {
  return new KpngError('KPNG_ADMIN_SOCKET', `no admin socket at ${path}: ${why}`, { cause });
}

/** Whether a `host` header names this host, and not a name that others control. */
export function isLocalName(header: string): boolean {
  const name = header.replace(/:\d+$/, '').toLowerCase();
  return name === 'localhost' || isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
}
