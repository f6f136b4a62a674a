import { chmod, lstat, rename, unlink } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { messageOf } from '../errors.ts';
import type { Answer } from '../util/http-server.ts';
import { askAdmin } from './client.ts';
import { failure, type AdminRequest } from './handler.ts';
import { isLocalName } from './local-name.ts';
import { checkDirectory, isCode, isPipe, refusal } from './socket-path.ts';

/** Clients at once; whoever comes beyond that is cut. */
export const MAX_ADMIN_CLIENTS = 32;
/** What a request may send along. */
const MAX_BODY_BYTES = 64 * 1024;
const HEADERS_TIMEOUT_MS = 5000;
/** A client that does nothing for so long is cut. */
const IDLE_TIMEOUT_MS = 30_000;
/** How long whoever has the socket may take to say who it is. */
const HOLDER_TIMEOUT_MS = 1000;

export interface SocketServerOptions {
  readonly path: string;
  /** Number of this user; undefined on Windows. */
  readonly uid: number | undefined;
  readonly answer: (request: AdminRequest) => Promise<Answer>;
  /** Told of an answer that could not be made. */
  readonly onAnswerFailed: (path: string, error: unknown) => void;
}

export interface SocketServer {
  /** Stops listening, cuts clients and removes the socket if it is still ours. Idempotent. */
  close(): Promise<void>;
}

/**
 * Serves the admin API on a Unix socket, for its owner only, or on a named pipe.
 *
 * A socket that a dead process has left is replaced. Rejects with KPNG_ADMIN_SOCKET when a live one has it,
 * which the message names, or when the directory is not safe.
 */
export async function startSocketServer(options: SocketServerOptions): Promise<SocketServer> {
  const { path, uid } = options;
  if (!isPipe(path)) {
    await checkDirectory(path, uid);
    await checkFree(path);
  }
  const server = createServer({ headersTimeout: HEADERS_TIMEOUT_MS }, (request, response) => {
    void respond(request, response, options);
  });
  server.maxConnections = MAX_ADMIN_CLIENTS;
  server.timeout = IDLE_TIMEOUT_MS;
  if (isPipe(path)) await listen(server, path);
  const own = isPipe(path) ? undefined : await claim(server, path);
  return {
    async close() {
      const closed = new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
      server.closeAllConnections();
      await closed;
      // A successor may have the path by now.
      if (own === undefined || (await inodeOf(path)) !== own) return;
      await unlink(path).catch(() => undefined);
    },
  };
}

/** Finds out whether the path may be taken: nothing is there, or the socket of a process that is gone. */
async function checkFree(path: string): Promise<void> {
  const found = await lstat(path).catch((error: unknown) => {
    if (isCode(error, 'ENOENT')) return undefined;
    throw refusal(path, messageOf(error), error);
  });
  if (found === undefined) return;
  if (!found.isSocket()) throw refusal(path, 'there is something that is not a socket');
  if (await isLive(path)) throw refusal(path, `${await holderOf(path)} has it`);
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

async function holderOf(path: string): Promise<string> {
  try {
    const call = { socket: path, method: 'GET', operation: 'status' } as const;
    const status = await askAdmin({ ...call, timeoutMs: HOLDER_TIMEOUT_MS });
    const { pid, command } = (status as { process: { pid: number; command: string } }).process;
    return `process ${pid} (${command})`;
  } catch {
    return 'another process that does not say who it is';
  }
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
 * finds it complete. It also keeps Node from removing whatever is at the path when the server closes.
 * Returns the number of its file, to know it again.
 */
async function claim(server: Server, path: string): Promise<number> {
  const draft = `${path}.${process.pid}`;
  await unlink(draft).catch(() => undefined);
  await listen(server, draft);
  try {
    await chmod(draft, 0o600);
    const own = await inodeOf(draft);
    if (own === undefined) throw new Error('it is gone again');
    await rename(draft, path);
    return own;
  } catch (error) {
    server.close();
    throw refusal(path, messageOf(error), error);
  }
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
