import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Clock, Timer } from '../util/clock.ts';
import { formatHostPort, type HostPort } from '../util/host-port.ts';

/** What a page answers. */
export interface Answer {
  readonly status: number;
  readonly type: string;
  /** Text, or pieces of it that are made as fast as the client reads. */
  readonly body: string | AsyncIterable<string>;
}

export interface Page {
  /** One line for the index. */
  readonly summary: string;
  answer(): Answer | Promise<Answer>;
}

/** Pages by path; the index at `/` is made from them. */
export type Pages = ReadonlyMap<string, Page>;

export interface HttpServerOptions {
  readonly address: HostPort;
  readonly pages: Pages;
  readonly clock: Clock;
  /** Told the real address once the server listens. */
  readonly onListening: (address: HostPort) => void;
  /** Told of each failure to listen, and when it is tried again. Milliseconds. */
  readonly onBindFailed: (error: Error, retryInMs: number) => void;
  /** Told of a page that could not be made. */
  readonly onPageFailed: (path: string, error: unknown) => void;
}

/** A server that is there, or tries to be. */
export interface HttpServer {
  /** Stops listening and cuts what is open. Idempotent. */
  close(): Promise<void>;
}

/** Clients at once. */
export const MAX_HTTP_CONNECTIONS = 64;
const HEADERS_TIMEOUT_MS = 5000;
const REQUEST_TIMEOUT_MS = 10_000;
/** A client that reads nothing for so long is cut. */
const IDLE_TIMEOUT_MS = 30_000;
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;

/**
 * Serves pages to GET and HEAD. An address that is taken is reported and tried again for ever, with
 * growing waits: watching must never keep the proxy from its work.
 */
export function startHttpServer(options: HttpServerOptions): HttpServer {
  const { address, clock } = options;
  let retry: Timer | undefined;
  let retryInMs = FIRST_RETRY_MS;
  let closed = false;
  let server = attempt();

  function attempt(): Server {
    const started = createServer(
      { headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: REQUEST_TIMEOUT_MS },
      (request, response) => {
        void respond(request, response, options);
      },
    );
    limitConnections(started);
    started.timeout = IDLE_TIMEOUT_MS;
    started.on('error', (error) => {
      // Once it listens, an error is a client that could not be accepted; Node goes on accepting.
      if (closed || started.listening) return;
      options.onBindFailed(error, retryInMs);
      retry = clock.setTimer(retryInMs, () => {
        server = attempt();
      });
      retryInMs = Math.min(retryInMs * 2, MAX_RETRY_MS);
    });
    const host = address.host === '' ? {} : { host: address.host };
    started.listen({ ...host, port: address.port }, () => {
      const bound = started.address();
      if (bound !== null && typeof bound === 'object') {
        options.onListening({ host: bound.address, port: bound.port });
      }
    });
    return started;
  }

  return {
    close: () =>
      new Promise((resolve) => {
        closed = true;
        retry?.cancel();
        // The callback's error only says that it was not listening, which is what is wanted.
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/**
 * Above the limit, the client that has been idle for longest is cut. If the new one were cut instead,
 * as `maxConnections` does, anybody could keep all probes and scrapes out with a few connections that
 * say nothing.
 */
function limitConnections(server: Server): void {
  /** Requests that are being answered, by client; those without any, the longest idle first. */
  const open = new Map<Socket, number>();
  const idle = new Set<Socket>();
  const note = (socket: Socket, change: number): void => {
    const requests = (open.get(socket) ?? 0) + change;
    open.set(socket, requests);
    if (requests === 0) idle.add(socket);
    else idle.delete(socket);
  };
  server.on('connection', (socket) => {
    note(socket, 0);
    socket.once('close', () => {
      open.delete(socket);
      idle.delete(socket);
    });
    if (open.size <= MAX_HTTP_CONNECTIONS) return;
    const [longest = socket] = idle;
    idle.delete(longest);
    longest.destroy();
  });
  server.on('request', ({ socket }, response) => {
    note(socket, 1);
    response.once('close', () => {
      if (open.has(socket)) note(socket, -1);
    });
  });
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  { pages, onPageFailed }: HttpServerOptions,
): Promise<void> {
  const path = (request.url ?? '/').split('?', 1)[0] ?? '/';
  try {
    await send(request, response, await answerTo(request.method, path, pages));
  } catch (error) {
    if (!response.headersSent) {
      onPageFailed(path, error);
      await send(request, response, plain(500, 'The page could not be made; the log tells why.\n'));
      return;
    }
    if (!isClientGone(error)) onPageFailed(path, error);
    response.destroy();
  }
}

/** Whether a page was not finished because the client went away, which is no failure of the page. */
function isClientGone(error: unknown): boolean {
  if (!(error instanceof Error && 'code' in error)) return false;
  return ['ERR_STREAM_PREMATURE_CLOSE', 'ECONNRESET', 'EPIPE'].includes(String(error.code));
}

function answerTo(
  method: string | undefined,
  path: string,
  pages: Pages,
): Answer | Promise<Answer> {
  if (method !== 'GET' && method !== 'HEAD') {
    return plain(405, `${method} is not served here, only GET and HEAD.\n`);
  }
  const page = pages.get(path);
  if (page !== undefined) return page.answer();
  return path === '/' ? plain(200, index(pages)) : plain(404, `No such page.\n\n${index(pages)}`);
}

async function send(
  request: IncomingMessage,
  response: ServerResponse,
  { status, type, body }: Answer,
): Promise<void> {
  response.writeHead(status, {
    'content-type': type,
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
    ...(status === 405 && { allow: 'GET, HEAD' }),
    ...(typeof body === 'string' && { 'content-length': Buffer.byteLength(body) }),
  });
  if (request.method === 'HEAD') response.end();
  else if (typeof body === 'string') response.end(body);
  else await pipeline(Readable.from(body, { objectMode: false }), response);
}

function index(pages: Pages): string {
  return [...pages].map(([path, { summary }]) => `${path.padEnd(12)}${summary}\n`).join('');
}

/** A short text as an answer. */
export function plain(status: number, body: string): Answer {
  return { status, type: 'text/plain; charset=utf-8', body };
}

/** Where a server listens, for messages. */
export function httpUrl(address: HostPort): string {
  return `http://${formatHostPort(address)}`;
}
