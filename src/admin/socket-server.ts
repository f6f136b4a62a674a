import { chmod, link, lstat, rename, unlink } from 'node:fs/promises';
import type { Server } from 'node:http';
import { messageOf } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import { HttpConnections } from '../util/http-connections.ts';
import { MAX_REQUEST_BYTES } from '../util/http-limits.ts';
import type { HttpResponse, HttpRequest } from '../util/http-server.ts';
import { createServer } from '../util/node-http.ts';
import { failure } from './handler.ts';
import { checkDirectory, isCode, isLocalName, isPipe, refusal } from './socket-path.ts';
import { checkFree } from './other-sockets.ts';

export interface SocketServerOptions {
  readonly path: string;
  /** Number of this user; undefined on Windows. */
  readonly uid: number | undefined;
  /** The running process whose path may be taken; undefined: none. */
  readonly predecessor?: number | undefined;
  readonly clock: Clock;
  readonly answer: (request: HttpRequest) => Promise<HttpResponse>;
  /** Called when a response could not be rendered. */
  readonly onAnswerFailed: (path: string, error: unknown) => void;
}

export interface SocketServer {
  /**
   * Removes the socket if it is still ours, and stops listening. Resolves when every connected client has been
   * answered, has disconnected, or has timed out. Idempotent.
   */
  leave(): Promise<void>;
  /** Stops listening, closes connections and removes the socket if it is still ours. Idempotent. */
  close(): Promise<void>;
}

/**
 * Serves the admin API on a Unix socket, for its owner only, or on a named pipe.
 *
 * The socket of a dead process or of the predecessor is replaced atomically: a client always finds one of the two.
 * Rejects with KPNG_ADMIN_SOCKET if another live process has the path, which the message names, or if the directory
 * is not safe.
 */
export async function startSocketServer(options: SocketServerOptions): Promise<SocketServer> {
  const { path, uid, predecessor } = options;
  let replaces = false;
  if (!isPipe(path)) {
    await checkDirectory(path, uid);
    replaces = await checkFree(path, predecessor);
  }
  const connections = new HttpConnections({
    ...options,
    create: createServer,
    answer: async (request) => refuse(request) ?? options.answer(request),
    refuseBody: () =>
      failure(413, 'KPNG_USAGE', `the request body is longer than ${MAX_REQUEST_BYTES} bytes`),
  });
  const { server } = connections;
  if (isPipe(path)) await listen(server, path);
  const own = isPipe(path) ? undefined : await claim(server, path, replaces);
  const removeSocket = async (): Promise<void> => {
    // A new process may have replaced the socket.
    if (own === undefined || (await inodeOf(path)) !== own) return;
    await unlink(path).catch(() => undefined);
  };
  return {
    async leave() {
      await removeSocket();
      await connections.leave({ acceptsAll: true });
    },
    async close() {
      await connections.close();
      await removeSocket();
    },
  };
}

async function listen(server: Server, path: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const failed = (error: Error): void => reject(refusal(path, messageOf(error), error));
    server.once('error', failed);
    // The socket is created within the call: no other user can open it in between.
    const previous = isPipe(path) ? undefined : process.umask(0o177);
    try {
      server.listen(path, () => {
        server.off('error', failed);
        resolve();
      });
    } finally {
      if (previous !== undefined) process.umask(previous);
    }
  });
}

/**
 * Creates the socket under another name and renames it with its mode set, so that clients only find a complete one.
 * It also keeps Node from removing the path when the server closes: Node removes the draft's name. Returns the inode
 * number, to recognize it.
 */
async function claim(server: Server, path: string, replaces: boolean): Promise<number> {
  const draft = `${path}~${process.pid}`;
  await unlink(draft).catch(() => undefined);
  await listen(server, draft);
  try {
    await chmod(draft, 0o600);
    const own = await inodeOf(draft);
    if (own === undefined) throw new Error('it is gone again');
    await (replaces ? rename(draft, path) : linkExclusive(draft, path));
    return own;
  } catch (error) {
    server.close();
    throw refusal(path, messageOf(error), error);
  }
}

/** Unlike `rename`, replaces nothing: another process may have taken the path since the check. */
async function linkExclusive(draft: string, path: string): Promise<void> {
  try {
    await link(draft, path);
  } catch (error) {
    if (isCode(error, 'EEXIST')) throw error;
    // Not every file system supports hard links.
    await rename(draft, path);
    return;
  }
  await unlink(draft);
}

async function inodeOf(path: string): Promise<number | undefined> {
  return (await lstat(path).catch(() => undefined))?.ino;
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
