import type { Stats } from 'node:fs';
import { lstat, readdir, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { isServed } from '../util/socket-file.ts';
import { callAdmin } from './client.ts';
import { isPipe, refusal } from './socket-path.ts';
import type { StatusView } from './views.ts';

/** Time limit for the owner of a socket to identify itself. Milliseconds. */
const HOLDER_TIMEOUT_MS = 1000;

/**
 * Checks that a file at the path is the socket of the predecessor or of a dead process. Rejects with KPNG_ADMIN_SOCKET
 * if not.
 */
export async function checkReplaceable(
  path: string,
  found: Stats,
  predecessor: number | undefined,
): Promise<void> {
  if (!found.isSocket()) throw refusal(path, 'there is something that is not a socket');
  if (!(await isServed(path))) return;
  const holder = await holderOf(path);
  if (holder !== undefined && holder.pid === predecessor) return;
  const who = holder && `process ${holder.pid} (${holder.command})`;
  throw refusal(path, `${who ?? 'an unknown process'} has it`);
}

/** Suffixes of the path: for a process that is being replaced, and for a socket that is being created. */
const BESIDE = /^(?:\.\d+)?(?:~\d+)?$/;

/** Removes sockets next to a path whose processes have ended. */
export async function removeDeadSockets(path: string): Promise<void> {
  if (isPipe(path)) return;
  const [folder, name] = [dirname(path), basename(path)];
  for (const entry of await readdir(folder).catch(() => [])) {
    if (entry === name || !entry.startsWith(name)) continue;
    if (!BESIDE.test(entry.slice(name.length))) continue;
    const found = join(folder, entry);
    const isSocket = (await lstat(found).catch(() => undefined))?.isSocket() === true;
    if (isSocket && !(await isServed(found))) await unlink(found).catch(() => undefined);
  }
}

/** The process that answers on the socket; undefined: it does not identify itself. */
async function holderOf(path: string): Promise<StatusView['process'] | undefined> {
  try {
    const call = { socket: path, method: 'GET', operation: 'status' } as const;
    const status = await callAdmin({ ...call, timeoutMs: HOLDER_TIMEOUT_MS });
    return (status as StatusView).process;
  } catch {
    return undefined;
  }
}
