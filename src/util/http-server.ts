import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Clock, Timer } from './clock.ts';
import { formatHostPort, type HostPort } from './host-port.ts';
import { Turn } from './turn.ts';

/** What a client is answered. */
export interface Answer {
  readonly status: number;
  readonly type: string;
  /** Text, or pieces of it that are made as fast as the client reads. */
  readonly body: string | AsyncIterable<string>;
  /** Further headers, by name in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** What else of a request a page may depend on. */
export interface RequestParts {
  readonly method: string;
  /** What follows the question mark; empty: nothing. */
  readonly query: string;
  /** The header `host`; empty when there is none. */
  readonly host: string;
  /** The header `authorization`; empty when there is none. */
  readonly authorization: string;
}

export interface HttpServerOptions {
  readonly address: HostPort;
  readonly clock: Clock;
  /** The listening socket that another process has had at the address, if it is there. Default: it never is. */
  readonly inherit?: Inherit | undefined;
  /** When it may begin. Default: at once. */
  readonly turn?: Turn | undefined;
  /** Makes the server. Default: one of plain HTTP. */
  readonly create?: CreateServer;
  /** Answers GET and HEAD. The path has no query. */
  readonly answer: (path: string, request: RequestParts) => Answer | Promise<Answer>;
  /** Told the real address once the server listens. */
  readonly onListening: (address: HostPort) => void;
  /** Told of each failure to listen, and when it is tried again. Milliseconds. */
  readonly onBindFailed: (error: Error, retryInMs: number) => void;
  /** Told of an answer that could not be made. */
  readonly onAnswerFailed: (path: string, error: unknown) => void;
}

/** Gives a descriptor away. The address may be empty: every address of the host. */
export type Inherit = (address: HostPort) => number | undefined;

/** Makes a server that is not listening yet, be it of HTTP or of HTTPS. */
export type CreateServer = (options: HttpTimes, listener: RequestListener) => Server;

/** Times that a server has to keep. Milliseconds. */
export interface HttpTimes {
  readonly headersTimeout: number;
  readonly requestTimeout: number;
}

/** A server that is there, or tries to be. */
export interface HttpServer {
  /** The ports that it listens on now. */
  readonly ports: readonly number[];
  /**
   * Stops listening because another process answers. Resolves when whoever has connected has been answered, or has
   * not asked in time. Idempotent.
   */
  leave(): Promise<void>;
  /** Stops listening and cuts what is open. Idempotent. */
  close(): Promise<void>;
}

/** Clients at once. */
export const MAX_HTTP_CONNECTIONS = 64;
const HEADERS_TIMEOUT_MS = 5000;
const REQUEST_TIMEOUT_MS = 10_000;
/** A client that reads nothing for so long is cut. */
const IDLE_TIMEOUT_MS = 30_000;
/** Somebody who has connected when another process takes over has this long to ask and be answered. */
const LEAVE_MS = 5000;
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;

/**
 * Answers GET and HEAD, once its turn has come. An address that is taken is reported and tried again for ever, with growing
 * waits: watching must never keep the proxy from its work.
 */
export function startHttpServer(options: HttpServerOptions): HttpServer {
  const { address, clock, create = createServer, turn = Turn.atOnce() } = options;
  let retry: Timer | undefined;
  let retryInMs = FIRST_RETRY_MS;
  let closed = false;
  let left: Promise<void> | undefined;
  let clients = new Clients();
  let server: Server | undefined;
  turn.whenItComes(() => {
    if (!closed) server = attempt(options.inherit?.(address));
  });

  function attempt(fd?: number): Server {
    const started = create(
      { headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: REQUEST_TIMEOUT_MS },
      (request, response) => {
        // Whoever asks again asks the other process.
        if (left !== undefined) response.shouldKeepAlive = false;
        void respond(request, response, options);
      },
    );
    clients = new Clients();
    clients.follow(started);
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
    started.listen(fd === undefined ? { ...host, port: address.port } : { fd }, () => {
      const bound = started.address();
      if (bound !== null && typeof bound === 'object') {
        options.onListening({ host: bound.address, port: bound.port });
      }
    });
    return started;
  }

  async function leave(): Promise<void> {
    if (server === undefined) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    // Not as a server of HTTP does it, which also ends whoever has not asked yet.
    NetServer.prototype.close.call(server, () => resolve());
    clients.endAnswered();
    const limit = clock.setTimer(LEAVE_MS, resolve);
    await promise;
    limit.cancel();
    server.close();
    server.closeAllConnections();
  }

  return {
    get ports() {
      const bound = server?.address();
      return bound !== undefined && bound !== null && typeof bound === 'object' ? [bound.port] : [];
    },
    leave() {
      closed = true;
      retry?.cancel();
      left ??= leave();
      return left;
    },
    close: () =>
      left ??
      new Promise((resolve) => {
        closed = true;
        retry?.cancel();
        if (server === undefined) {
          resolve();
          return;
        }
        // The callback's error only says that it was not listening, which is what is wanted.
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** A connection of a client. */
interface Client {
  readonly socket: Socket;
  /** Requests that are being answered. */
  requests: number;
  hasAsked: boolean;
}

/**
 * Who is connected to a server. Above the limit, the client that has been idle for longest is cut. If the new one
 * were cut instead, as `maxConnections` does, anybody could keep all probes and scrapes out with a few
 * connections that say nothing.
 */
class Clients {
  readonly #open = new Map<string, Client>();
  /** Those without a request, the longest idle first. */
  readonly #idle = new Set<string>();

  follow(server: Server): void {
    server.on('connection', (socket) => this.#connected(socket));
    server.on('request', ({ socket }, response) => {
      const key = keyOf(socket);
      this.#note(key, 1);
      response.once('close', () => this.#note(key, -1));
    });
  }

  /** Cuts those who have been answered and may ask again. */
  endAnswered(): void {
    for (const key of this.#idle) {
      const client = this.#open.get(key);
      if (client?.hasAsked === true) client.socket.destroy();
    }
  }

  #connected(socket: Socket): void {
    const key = keyOf(socket);
    this.#open.set(key, { socket, requests: 0, hasAsked: false });
    this.#note(key, 0);
    socket.once('close', () => {
      // Another connection may come from the same port by now.
      if (this.#open.get(key)?.socket !== socket) return;
      this.#open.delete(key);
      this.#idle.delete(key);
    });
    if (this.#open.size <= MAX_HTTP_CONNECTIONS) return;
    const [longest = key] = this.#idle;
    this.#idle.delete(longest);
    this.#open.get(longest)?.socket.destroy();
  }

  #note(key: string, change: number): void {
    const client = this.#open.get(key);
    if (client === undefined) return;
    client.requests += change;
    if (change > 0) client.hasAsked = true;
    if (client.requests === 0) this.#idle.add(key);
    else this.#idle.delete(key);
  }
}

/** With TLS a request has a socket of its own, around that of the connection. */
function keyOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  { answer, onAnswerFailed }: HttpServerOptions,
): Promise<void> {
  const [path = '/', query = ''] = (request.url ?? '/').split('?', 2);
  try {
    const { method = 'GET', headers } = request;
    const { host = '', authorization = '' } = headers;
    const reads = method === 'GET' || method === 'HEAD';
    const parts = { method, query, host, authorization };
    await send(request, response, reads ? await answer(path, parts) : refusal(method));
  } catch (error) {
    if (!response.headersSent) {
      onAnswerFailed(path, error);
      await send(request, response, plain(500, 'The page could not be made; the log tells why.\n'));
      return;
    }
    if (!isClientGone(error)) onAnswerFailed(path, error);
    response.destroy();
  }
}

/** Whether a page was not finished because the client went away, which is no failure of the page. */
function isClientGone(error: unknown): boolean {
  if (!(error instanceof Error && 'code' in error)) return false;
  return ['ERR_STREAM_PREMATURE_CLOSE', 'ECONNRESET', 'EPIPE'].includes(String(error.code));
}

function refusal(method: string | undefined): Answer {
  return plain(405, `${method} is not served here, only GET and HEAD.\n`);
}

async function send(
  request: IncomingMessage,
  response: ServerResponse,
  { status, type, body, headers }: Answer,
): Promise<void> {
  response.writeHead(status, {
    'content-type': type,
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
    ...headers,
    ...(status === 405 && { allow: 'GET, HEAD' }),
    ...(typeof body === 'string' && { 'content-length': Buffer.byteLength(body) }),
  });
  if (request.method === 'HEAD') response.end();
  else if (typeof body === 'string') response.end(body);
  else await pipeline(Readable.from(body, { objectMode: false }), response);
}

/** A short text as an answer. */
export function plain(status: number, body: string): Answer {
  return { status, type: 'text/plain; charset=utf-8', body };
}

/** Where a server listens, for messages. */
export function httpUrl(address: HostPort, scheme: 'http' | 'https' = 'http'): string {
  return `${scheme}://${formatHostPort(address)}`;
}
