import { KpngError, messageOf } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import { HttpConnections } from '../util/http-connections.ts';
import { MAX_REQUEST_BYTES } from '../util/http-limits.ts';
import type { HttpResponse, HttpRequest } from '../util/http-server.ts';
import { createServer } from '../util/node-http.ts';
import { listenPrivately, SocketFile, isServed } from '../util/socket-file.ts';
import { failure } from './handler.ts';
import { checkDirectory, isLocalName, isPipe, refusal } from './socket-path.ts';
import type { Stats } from 'node:fs';
import { lstat, readdir, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { callAdmin } from './client.ts';
import type { StatusView } from './status.ts';

export interface SocketServerOptions {
  readonly path: string;
  /** The running process whose path may be taken; undefined: none. */
  readonly predecessor?: number | undefined;
  readonly clock: Clock;
  readonly answer: (request: HttpRequest) => Promise<HttpResponse>;
  readonly onAnswerFailed: (path: string, error: unknown) => void;
}

export type SocketServer = Awaited<ReturnType<typeof startSocketServer>>;

/**
 * Serves the admin API on a Unix socket, for its owner only, or on a named pipe.
 *
 * The socket of a dead process or of the predecessor is replaced atomically: a client always finds one of the two.
 * Rejects with KPNG_ADMIN_SOCKET if another live process has the path, which the message names, or if the directory
 * is not safe.
 */
export async function startSocketServer(options: SocketServerOptions) {
  const { path, predecessor } = options;
  const file = isPipe(path) ? undefined : new SocketFile(path);
  if (file !== undefined) await checkDirectory(path);
  const connections = new HttpConnections({
    ...options,
    create: createServer,
    answer: async (request) => refuse(request) ?? options.answer(request),
    refuseBody: () =>
      failure(413, 'KPNG_USAGE', `the request body is longer than ${MAX_REQUEST_BYTES} bytes`),
  });
  const { server } = connections;
  try {
    if (file === undefined) await listenPrivately(server, path);
    else await file.take(server, (found) => checkReplaceable(path, found, predecessor));
  } catch (error) {
    throw error instanceof KpngError ? error : refusal(path, messageOf(error), error);
  }
  return {
    /**
     * Removes the socket if it is still ours, and stops listening. Resolves when every connected client has been
     * answered, has disconnected, or has timed out. Idempotent.
     */
    async leave(): Promise<void> {
      file?.remove();
      await connections.leave({ acceptsAll: true });
    },
    /** Stops listening, closes connections and removes the socket if it is still ours. Idempotent. */
    async close(): Promise<void> {
      await connections.close();
      file?.remove();
    },
  };
}

/**
 * If the socket is forwarded to a local port, as ssh can do, any page in a browser on that host can send requests to
 * it. The headers that browsers add identify those; undefined: accept the request.
 */
function refuse({ method, headers }: HttpRequest): HttpResponse | undefined {
  const { host = '', origin } = headers;
  if (!isLocalName(host)) {
    return failure(421, 'KPNG_ADMIN_REFUSED', `${host} is not the name of this host`);
  }
  if (origin !== undefined && origin !== `http://${host}`) {
    return failure(403, 'KPNG_ADMIN_REFUSED', `pages of ${origin} may not send requests here`);
  }
  if (method === 'POST' && !/^application\/json\b/.test(headers['content-type'] ?? '')) {
    return failure(415, 'KPNG_USAGE', 'a POST needs the content type application/json');
  }
  return undefined;
}

/** Time limit for the owner of a socket to identify itself. Milliseconds. */
const HOLDER_TIMEOUT_MS = 1000;

/**
 * Checks that a file at the path is the socket of the predecessor or of a dead process. Rejects with KPNG_ADMIN_SOCKET
 * if not.
 */
async function checkReplaceable(
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
