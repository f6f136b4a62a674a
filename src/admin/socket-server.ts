import { chmod, link, lstat, rename, unlink } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { messageOf } from '../errors.ts';
import type { Answer } from '../util/http-server.ts';
import { failure, type AdminRequest } from './handler.ts';
import { Leaving } from './leaving.ts';
import { isLocalName } from './local-name.ts';
import { checkFree } from './other-sockets.ts';
import { checkDirectory, isCode, isPipe, refusal } from './socket-path.ts';

/** Clients at once; whoever comes beyond that is cut. */
export const MAX_ADMIN_CLIENTS = 32;
/** What a request may send along. */
const MAX_BODY_BYTES = 64 * 1024;
const HEADERS_TIMEOUT_MS = 5000;
/** A client that does nothing for so long is cut. */
const IDLE_TIMEOUT_MS = 30_000;

export interface SocketServerOptions {
  readonly path: string;
  /** Number of this user; undefined on Windows. */
  readonly uid: number | undefined;
  /** The process that the path may be taken from while it lives; undefined: none. */
  readonly predecessor?: number | undefined;
  readonly answer: (request: AdminRequest) => Promise<Answer>;
  /** Told of an answer that could not be made. */
  readonly onAnswerFailed: (path: string, error: unknown) => void;
}

export interface SocketServer {
  /**
   * Removes the socket if it is still ours, and stops listening. Resolves when whoever had connected has been answered or
   * has gone. Idempotent.
   */
  leave(): Promise<void>;
  /** Stops listening, cuts clients and removes the socket if it is still ours. Idempotent. */
  close(): Promise<void>;
}

/**
 * Serves the admin API on a Unix socket, for its owner only, or on a named pipe.
 *
 * A socket that a dead process has left is replaced, and that of the predecessor, in one step: whoever connects finds one
 * of the two. Rejects with KPNG_ADMIN_SOCKET when another live one has it, which the message names, or when the directory is
 * not safe.
 */
export async function startSocketServer(options: SocketServerOptions): Promise<SocketServer> {
  const { path, uid, predecessor } = options;
  let replaces = false;
  if (!isPipe(path)) {
    await checkDirectory(path, uid);
    replaces = await checkFree(path, predecessor);
  }
  const server = createServer({ headersTimeout: HEADERS_TIMEOUT_MS }, (request, response) => {
    void respond(request, response, options);
  });
  const leaving = new Leaving(server);
  server.maxConnections = MAX_ADMIN_CLIENTS;
  server.timeout = IDLE_TIMEOUT_MS;
  if (isPipe(path)) await listen(server, path);
  const own = isPipe(path) ? undefined : await claim(server, path, replaces);
  const giveUpPath = async (): Promise<void> => {
    // A successor may have the path by now.
    if (own === undefined || (await inodeOf(path)) !== own) return;
    await unlink(path).catch(() => undefined);
  };
  return {
    async leave() {
      await giveUpPath();
      await leaving.leave();
    },
    async close() {
      const closed = new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
      server.closeAllConnections();
      await closed;
      await giveUpPath();
    },
  };
}

async function listen(server: Server, path: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const failed = (error: Error): void => reject(refusal(path, messageOf(error), error));
    server.once('error', failed);
    // The socket is made within the call: nobody else can open it, not even for a moment.
    const former = isPipe(path) ? undefined : process.umask(0o177);
    try {
      server.listen(path, () => {
        server.off('error', failed);
        resolve();
      });
    } finally {
      if (former !== undefined) process.umask(former);
    }
  });
}

/**
 * Makes the socket under another name and moves it into place, with its mode: whoever finds it at the path
 * finds it complete. It also keeps Node from removing whatever is at the path when the server closes: it removes
 * what has the name of the draft then, so no socket that stays may have such a name.
 * Returns the number of its file, to know it again.
 */
async function claim(server: Server, path: string, replaces: boolean): Promise<number> {
  const draft = `${path}~${process.pid}`;
  await unlink(draft).catch(() => undefined);
  await listen(server, draft);
  try {
    await chmod(draft, 0o600);
    const own = await inodeOf(draft);
    if (own === undefined) throw new Error('it is gone again');
    await (replaces ? rename(draft, path) : nameAnew(draft, path));
    return own;
  } catch (error) {
    server.close();
    throw refusal(path, messageOf(error), error);
  }
}

/** Unlike `rename`, replaces nothing: another process may have got the path since it was looked at. */
async function nameAnew(draft: string, path: string): Promise<void> {
  try {
    await link(draft, path);
  } catch (error) {
    if (isCode(error, 'EEXIST')) throw error;
    // Not every file system lets a file have two names.
    await rename(draft, path);
    return;
  }
  await unlink(draft);
}

async function inodeOf(path: string): Promise<number | undefined> {
  return (await lstat(path).catch(() => undefined))?.ino;
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  { answer, onAnswerFailed }: SocketServerOptions,
): Promise<void> {
  const [path = '/', query = ''] = (request.url ?? '/').split('?', 2);
  const { method = 'GET' } = request;
  try {
    const body = await readBody(request);
    const found =
      body === undefined
        ? failure(413, 'KPNG_USAGE', `a request may send ${MAX_BODY_BYTES} bytes along`)
        : (refuse(request) ?? (await answer({ method, path, query, body, trusted: true })));
    await send(response, found, method);
  } catch (error) {
    if (response.headersSent || request.destroyed) {
      response.destroy();
      return;
    }
    onAnswerFailed(path, error);
    await send(
      response,
      failure(500, 'KPNG_ADMIN_REFUSED', 'the answer could not be made; the log tells why'),
      method,
    );
  }
}

/**
 * Where the socket is forwarded to a port of somebody's own host, as ssh does it, any page in that browser
 * can send requests here. They are refused by what browsers add to them; undefined: it may pass.
 */
function refuse({ method, headers }: IncomingMessage): Answer | undefined {
  const { host = '', origin } = headers;
  if (!isLocalName(host)) {
    return failure(421, 'KPNG_ADMIN_REFUSED', `${host} is not the name of this host`);
  }
  if (origin !== undefined && origin !== `http://${host}`) {
    return failure(403, 'KPNG_ADMIN_REFUSED', `pages of ${origin} may not ask here`);
  }
  if (method === 'POST' && !/^application\/json\b/.test(headers['content-type'] ?? '')) {
    return failure(415, 'KPNG_USAGE', 'a POST needs the content type application/json');
  }
  return undefined;
}

/** Undefined when it is too long. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size <= MAX_BODY_BYTES) pieces.push(piece);
  }
  return size > MAX_BODY_BYTES ? undefined : Buffer.concat(pieces).toString('utf8');
}

async function send(
  response: ServerResponse,
  { status, type, body, headers }: Answer,
  method: string,
): Promise<void> {
  response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store', ...headers });
  if (method === 'HEAD') response.end();
  else if (typeof body === 'string') response.end(body);
  else await pipeline(Readable.from(body, { objectMode: false }), response);
}
