import { lstat, readdir, unlink } from 'node:fs/promises';
import { connect } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { messageOf } from '../errors.ts';
import { callAdmin } from './client.ts';
import { isCode, isPipe, refusal } from './socket-path.ts';
import type { StatusView } from './views.ts';

/** Time limit for the owner of a socket to identify itself. Milliseconds. */
const HOLDER_TIMEOUT_MS = 1000;

/**
 * Checks that the path is free, or holds the socket of the predecessor or of a dead process. Resolves with whether
 * such a socket has to be replaced. Rejects with KPNG_ADMIN_SOCKET.
 */
export async function checkFree(path: string, predecessor: number | undefined): Promise<boolean> {
  const found = await lstat(path).catch((error: unknown) => {
    if (isCode(error, 'ENOENT')) return undefined;
    throw refusal(path, messageOf(error), error);
  });
  if (found === undefined) return false;
  if (!found.isSocket()) throw refusal(path, 'there is something that is not a socket');
  if (!(await isLive(path))) return true;
  const holder = await holderOf(path);
  if (holder !== undefined && holder.pid === predecessor) return true;
  throw refusal(
    path,
    `${holder === undefined ? UNKNOWN : `process ${holder.pid} (${holder.command})`} has it`,
  );
}

const UNKNOWN = 'an unknown process';

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
    if (isSocket && !(await isLive(found).catch(() => true)))
      await unlink(found).catch(() => undefined);
  }
}

function isLive(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error) => {
      if (isCode(error, 'ECONNREFUSED') || isCode(error, 'ENOENT')) resolve(false);
      else if (isCode(error, 'EAGAIN')) resolve(true);
      else reject(refusal(path, messageOf(error), error));
    });
  });
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
