import { once } from 'node:events';
import type {
  IncomingHttpHeaders,
  IncomingMessage,
  RequestListener,
  Server,
  ServerOptions,
  ServerResponse,
} from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { typedChannel } from './channel.ts';
import type { Clock } from './clock.ts';
import { peerText } from './host-port.ts';
import { SerialQueue } from './serial-queue.ts';

/** Connections to one HTTP server at once. */
export const MAX_HTTP_CONNECTIONS = 64;
/** Pipelined requests of one connection that wait for an earlier response. */
export const MAX_WAITING_REQUESTS = 8;
/** Bytes of a request body; ignored by servers that read none. */
export const MAX_REQUEST_BYTES = 64 * 1024;
/** Response bytes that clients have not read yet, across all HTTP servers of the process. */
export const MAX_RESPONSE_BYTES = 128 * 1024 * 1024;
/** Time from the start of a response until the client has read all of it. */
export const RESPONSE_TIMEOUT_MS = 60_000;
/** Time for the headers of a request, on a new connection too. */
export const HEADERS_TIMEOUT_MS = 5000;
/** Time for a whole request. */
export const REQUEST_TIMEOUT_MS = 10_000;
/** Time without a byte read or written. */
export const IDLE_TIMEOUT_MS = 30_000;

export type HttpLimit = 'connections' | 'waiting-requests' | 'answer-bytes' | 'answer-time';

/** An HTTP connection was closed because a limit was reached. */
export const httpLimitReached = typedChannel<{
  limit: HttpLimit;
  /** The client, as `ip:port`; empty on the admin socket. */
  remoteAddress: string;
}>('http:limit-reached');

/** The parts of a request that a page may depend on. */
export interface HttpRequest {
  /** GET or HEAD; on the admin socket, any other too. */
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** After the question mark; empty: none. */
  readonly query: string;
  readonly headers: IncomingHttpHeaders;
  /** Reads the body, once. Undefined: longer than MAX_REQUEST_BYTES. */
  readonly readBody: () => Promise<string | undefined>;
  /** Aborts when the response is no longer needed: the client has read it or disconnected, or a limit is reached. */
  readonly signal: AbortSignal;
}

export interface HttpResponse {
  readonly status: number;
  readonly type: string;
  readonly body: ResponseBody;
  /** Further headers, by name in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * A text; or pieces produced as fast as the client reads; or a function that makes a whole page, which several
 * clients may share. For HEAD, only a text is produced.
 */
export type ResponseBody =
  string | AsyncIterable<string> | ((signal: AbortSignal) => Promise<readonly Uint8Array[]>);

export function plain(status: number, body: string): HttpResponse {
  return { status, type: 'text/plain; charset=utf-8', body };
}

export function json(status: number, value: unknown): HttpResponse {
  return { status, type: JSON_TYPE, body: `${JSON.stringify(value)}\n` };
}

export const JSON_TYPE = 'application/json';

export interface HttpConnectionsOptions {
  readonly create: CreateServer;
  readonly clock: Clock;
  readonly answer: (request: HttpRequest) => HttpResponse | Promise<HttpResponse>;
  /** Called when a response could not be rendered. */
  readonly onAnswerFailed: (path: string, error: unknown) => void;
}

/** Creates an HTTP or HTTPS server that does not listen yet. */
export type CreateServer = (options: ServerOptions, listener: RequestListener) => Server;

const TIMES: ServerOptions = {
  headersTimeout: HEADERS_TIMEOUT_MS,
  requestTimeout: REQUEST_TIMEOUT_MS,
  // Node's default is 30 s. Each server has a timer for it, so a shorter one would keep an idle process busy.
  connectionsCheckingInterval: 5000,
};
/** Time limit for clients that connected before a handover to send a request and read its answer. */
const LINGER_MS = 5000;

interface Client {
  readonly socket: Socket;
  /** Requests without a complete response; one is answered at a time. */
  readonly requests: SerialQueue;
  /**
   * - `new`: no request yet.
   * - `idle`: the last request is answered.
   * - `making`: waits for a response.
   * - `reading`: reads the response.
   */
  state: 'new' | 'idle' | 'making' | 'reading';
}

/**
 * The response bytes in memory that clients of all servers have not read yet. The response without progress for longest
 * comes first.
 */
const held = new Map<Client, { readonly body: object; readonly bytes: number }>();

/** A body that several clients read counts once. */
function heldBytes(): number {
  const bodies = new Map([...held.values()].map(({ body, bytes }) => [body, bytes]));
  return [...bodies.values()].reduce((sum, bytes) => sum + bytes, 0);
}

function drop(client: Client, limit: HttpLimit): void {
  held.delete(client);
  if (client.socket.destroyed) return;
  const remoteAddress = peerText(client.socket);
  client.socket.destroy();
  httpLimitReached.publish({ limit, remoteAddress });
}

/**
 * The clients of one HTTP server and their responses: one at a time for each connection, in request order.
 *
 * Above the connection limit, the connection that has been idle for longest is closed, or else the one that has been
 * reading its response for longest. Closing the new one instead, as `maxConnections` does, would let a few silent
 * clients lock out all probes and scrapes.
 */
export class HttpConnections {
  readonly server: Server;
  readonly #options: HttpConnectionsOptions;
  /** Least recently changed first. */
  readonly #open = new Map<Socket, Client>();
  #accepted = 0;
  #left: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: HttpConnectionsOptions) {
    this.#options = options;
    this.server = options.create(TIMES, (_, response) => this.#handle(response));
    this.server.timeout = IDLE_TIMEOUT_MS;
    this.server.on('connection', (socket: Socket) => this.#connected(socket));
  }

  /**
   * Stops listening because another process now serves. Resolves when every connected client has been answered or has
   * timed out. With `acceptsAll`, clients in the accept queue are accepted first: closing the socket would reset
   * them. Idempotent.
   */
  leave({ acceptsAll = false } = {}): Promise<void> {
    this.#left ??= this.#leave(acceptsAll);
    return this.#left;
  }

  async #leave(acceptsAll: boolean): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const limit = this.#options.clock.setTimer(LINGER_MS, resolve);
    for (const { state, socket } of this.#open.values()) if (state === 'idle') socket.destroy();
    if (acceptsAll) await this.#acceptAll();
    // Closing an HTTP server would also close connections without a request yet.
    NetServer.prototype.close.call(this.server, () => resolve());
    await promise;
    limit.cancel();
    await this.close();
  }

  /** Stops listening and closes every connection. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= new Promise((resolve) => {
      // Ignores the error that the server was not listening.
      this.server.close(() => resolve());
      for (const { socket } of this.#open.values()) socket.destroy();
    });
    return this.#closed;
  }

  async #acceptAll(): Promise<void> {
    for (let before = -1; before !== this.#accepted;) {
      before = this.#accepted;
      // The event loop polls the socket between the two.
      await nextTurn();
      await nextTurn();
    }
  }

  #connected(socket: Socket): void {
    this.#accepted += 1;
    const client: Client = { socket, requests: new SerialQueue(), state: 'new' };
    this.#open.set(socket, client);
    socket.once('close', () => this.#open.delete(socket));
    if (this.#open.size <= MAX_HTTP_CONNECTIONS) return;
    const others = [...this.#open.values()].slice(0, -1);
    const dropped =
      others.find(({ state }) => state === 'new' || state === 'idle') ??
      others.find(({ state }) => state === 'reading');
    drop(dropped ?? client, 'connections');
  }

  /** With TLS, a request has its own socket, which wraps that of the connection. */
  #clientOf(stream: Socket): Client | undefined {
    const { remoteAddress, remotePort } = stream;
    const client = this.#open.get(stream);
    if (client !== undefined || remotePort === undefined) return client;
    return [...this.#open.values()].find(
      ({ socket }) => socket.remotePort === remotePort && socket.remoteAddress === remoteAddress,
    );
  }

  #handle(response: ServerResponse): void {
    const { socket } = response.req;
    const client = this.#clientOf(socket);
    // Pipelined requests behind one that has closed the connection still arrive.
    if (client === undefined || client.socket.destroyed) return;
    if (client.requests.size > MAX_WAITING_REQUESTS) {
      drop(client, 'waiting-requests');
      return;
    }
    void client.requests.run(async () => {
      if (socket.destroyed) return;
      await this.#answer(client, response);
      if (client.requests.size > 1) return;
      this.#change(client, 'idle');
      if (this.#left !== undefined) socket.end();
    });
  }

  /** Resolves when the client has read the response, or has disconnected. */
  async #answer(client: Client, response: ServerResponse): Promise<void> {
    this.#change(client, 'making');
    const drops = (): void => drop(client, 'answer-time');
    const limit = this.#options.clock.setTimer(RESPONSE_TIMEOUT_MS, drops);
    const abort = new AbortController();
    const closed = once(abort.signal, 'abort');
    response.once('close', () => abort.abort());
    // A client that sends another request has to reach the other process.
    if (this.#left !== undefined) response.shouldKeepAlive = false;
    // It rejects only if the client disconnects while a failure is reported to it.
    this.#respond(client, response, abort.signal).catch(() => abort.abort());
    await closed;
    limit.cancel();
    held.delete(client);
  }

  async #respond(client: Client, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const { url = '/', method = 'GET', headers, socket } = response.req;
    const [path = '/', query = ''] = url.split('?', 2);
    const { answer, onAnswerFailed } = this.#options;
    const readBody = () => bodyOf(response.req);
    try {
      const made = await answer({ method, path, query, headers, readBody, signal });
      await this.#send(client, response, made, signal);
    } catch (error) {
      if (signal.aborted) return;
      onAnswerFailed(path, error);
      if (response.headersSent) socket.destroy();
      else await this.#send(client, response, plain(500, FAILED), signal);
    }
  }

  async #send(
    client: Client,
    response: ServerResponse,
    { status, type, body: given, headers }: HttpResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const isHead = response.req.method === 'HEAD';
    const body = typeof given === 'function' && !isHead ? await given(signal) : given;
    signal.throwIfAborted();
    const pieces = typeof body === 'string' ? [body] : body;
    const bytes =
      typeof pieces === 'function' || Symbol.asyncIterator in pieces
        ? undefined
        : pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0);
    response.writeHead(status, {
      'content-type': type,
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
      ...headers,
      ...(bytes !== undefined && { 'content-length': bytes }),
    });
    if (!isHead && typeof pieces !== 'function') {
      for await (const piece of pieces) {
        signal.throwIfAborted();
        this.#hold(client, pieces, bytes ?? Buffer.byteLength(piece));
        if (!response.write(piece)) await once(response, 'drain', { signal });
      }
    }
    response.end();
  }

  /** Sets what the response of a client holds in memory. Above the limit, the slowest clients are dropped, but not this one. */
  #hold(client: Client, body: object, bytes: number): void {
    this.#change(client, 'reading');
    held.delete(client);
    held.set(client, { body, bytes });
    for (const oldest of held.keys()) {
      if (oldest === client || heldBytes() <= MAX_RESPONSE_BYTES) return;
      drop(oldest, 'answer-bytes');
    }
  }

  /** Keeps clients ordered by their last state change. */
  #change(client: Client, state: Client['state']): void {
    client.state = state;
    if (this.#open.delete(client.socket)) this.#open.set(client.socket, client);
  }
}

const FAILED = 'The page could not be rendered; see the log.\n';

/** All of a body that is too long is read: closing the connection earlier could destroy the response. */
async function bodyOf(request: IncomingMessage): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size <= MAX_REQUEST_BYTES) pieces.push(piece);
  }
  return size > MAX_REQUEST_BYTES ? undefined : Buffer.concat(pieces).toString('utf8');
}
