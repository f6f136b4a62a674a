import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Clock } from './clock.ts';
import { peerText } from './host-port.ts';
import { plain, sendResponse, type HttpResponse, type HttpRequest } from './http-response.ts';
import {
  RESPONSE_TIMEOUT_MS,
  ResponseBudget,
  HEADERS_TIMEOUT_MS,
  httpLimitReached,
  IDLE_TIMEOUT_MS,
  MAX_HTTP_CONNECTIONS,
  MAX_REQUEST_BYTES,
  MAX_WAITING_REQUESTS,
  REQUEST_TIMEOUT_MS,
  type HttpLimit,
} from './http-limits.ts';

export interface HttpConnectionsOptions {
  readonly create: CreateServer;
  readonly clock: Clock;
  readonly answer: (request: HttpRequest) => HttpResponse | Promise<HttpResponse>;
  /** Called when a response could not be rendered. */
  readonly onAnswerFailed: (path: string, error: unknown) => void;
  /**
   * Makes the response to a body that is too long, and enables reading request bodies. Default: only GET and HEAD are
   * served.
   */
  readonly refuseBody?: (() => HttpResponse) | undefined;
  readonly budget?: ResponseBudget | undefined;
}

/** Creates an HTTP or HTTPS server that does not listen yet. */
export type CreateServer = (options: HttpTimes, listener: RequestListener) => Server;

/** Time limits of a server. Milliseconds. */
export interface HttpTimes {
  readonly headersTimeout: number;
  readonly requestTimeout: number;
  readonly connectionsCheckingInterval: number;
}

const TIMES: HttpTimes = {
  headersTimeout: HEADERS_TIMEOUT_MS,
  requestTimeout: REQUEST_TIMEOUT_MS,
  // Node's default is 30 s. Each server has a timer for it, so a shorter one would keep an idle process busy.
  connectionsCheckingInterval: 5000,
};
/** Time limit for clients that connected before a handover to send a request and read its answer. */
const LINGER_MS = 5000;
const BUDGET = new ResponseBudget();

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

interface Client {
  readonly socket: Socket;
  /** The connection, or TLS on top of it. */
  stream: Socket;
  readonly waiting: Exchange[];
  /**
   * - `new`: no request yet.
   * - `idle`: the last request is answered.
   * - `making`: waits for a response.
   * - `reading`: reads the response.
   */
  state: 'new' | 'idle' | 'making' | 'reading';
  stop: (() => void) | undefined;
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
  readonly #budget: ResponseBudget;
  /** Least recently changed first. */
  readonly #open = new Map<Socket, Client>();
  #accepted = 0;
  #left: PromiseWithResolvers<void> | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: HttpConnectionsOptions) {
    this.#options = options;
    this.#budget = options.budget ?? BUDGET;
    this.server = options.create(TIMES, (request, response) => this.#handle(request, response));
    this.server.timeout = IDLE_TIMEOUT_MS;
    this.server.on('connection', (socket: Socket) => this.#connected(socket));
  }

  /**
   * Stops listening because another process now serves. Resolves when every connected client has been answered or has
   * timed out. With `acceptsAll`, clients in the accept queue are accepted first: closing the socket would reset
   * them. Idempotent.
   */
  async leave({ acceptsAll = false } = {}): Promise<void> {
    if (this.#left !== undefined) return this.#left.promise;
    this.#left = Promise.withResolvers();
    const limit = this.#options.clock.setTimer(LINGER_MS, () => this.#left?.resolve());
    for (const { state, socket } of this.#open.values()) if (state === 'idle') socket.destroy();
    if (acceptsAll) await this.#acceptAll();
    // Closing an HTTP server would also close connections without a request yet.
    NetServer.prototype.close.call(this.server, () => undefined);
    this.#checkLeft();
    await this.#left.promise;
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

  #checkLeft(): void {
    if (this.#open.size === 0) this.#left?.resolve();
  }

  #connected(socket: Socket): void {
    this.#accepted += 1;
    const client: Client = { socket, stream: socket, waiting: [], state: 'new', stop: undefined };
    this.#open.set(socket, client);
    socket.once('close', () => {
      this.#open.delete(socket);
      client.waiting.length = 0;
      client.stop?.();
      this.#checkLeft();
    });
    if (this.#open.size <= MAX_HTTP_CONNECTIONS) return;
    const others = [...this.#open.values()].slice(0, -1);
    const dropped =
      others.find(({ state }) => state === 'new' || state === 'idle') ??
      others.find(({ state }) => state === 'reading');
    this.#drop(dropped ?? client, 'connections');
  }

  /** With TLS, a request has its own socket, which wraps that of the connection. */
  #clientOf({ remoteAddress, remotePort }: Socket): Client | undefined {
    if (remotePort === undefined) return undefined;
    for (const client of this.#open.values()) {
      const { socket } = client;
      if (socket.remotePort === remotePort && socket.remoteAddress === remoteAddress) return client;
    }
    return undefined;
  }

  #handle(request: IncomingMessage, response: ServerResponse): void {
    const client = this.#open.get(request.socket) ?? this.#clientOf(request.socket);
    // Pipelined requests behind one that has closed the connection still arrive.
    if (client === undefined || client.socket.destroyed) return;
    if (client.waiting.length >= MAX_WAITING_REQUESTS) {
      this.#drop(client, 'waiting-requests');
      return;
    }
    client.stream = request.socket;
    client.waiting.push({ request, response });
    if (client.stop === undefined) void this.#answerAll(client);
  }

  async #answerAll(client: Client): Promise<void> {
    for (let next = client.waiting.shift(); next !== undefined; next = client.waiting.shift()) {
      await this.#answerOne(client, next);
    }
    this.#change(client, 'idle');
    if (this.#left !== undefined) client.stream.end();
  }

  async #answerOne(client: Client, { request, response }: Exchange): Promise<void> {
    const ended = Promise.withResolvers<void>();
    const abort = new AbortController();
    const drop = (): void => {
      this.#budget.set(drop, 0);
      this.#drop(client, 'answer-bytes');
    };
    const limit = this.#options.clock.setTimer(RESPONSE_TIMEOUT_MS, () =>
      this.#drop(client, 'answer-time'),
    );
    client.stop = () => {
      abort.abort();
      ended.resolve();
    };
    this.#change(client, 'making');
    response.once('close', ended.resolve);
    // A client that sends another request has to reach the other process.
    if (this.#left !== undefined) response.shouldKeepAlive = false;
    const hold = (bytes: number, body?: object): void => {
      if (client.socket.destroyed) return;
      this.#change(client, 'reading');
      this.#budget.set(drop, bytes, body);
    };
    await Promise.race([this.#respond(request, response, abort.signal, hold), ended.promise]);
    await ended.promise;
    client.stop = undefined;
    this.#budget.set(drop, 0);
    limit.cancel();
  }

  async #respond(
    request: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
    hold: (bytes: number, body?: object) => void,
  ): Promise<void> {
    const [path = '/', query = ''] = (request.url ?? '/').split('?', 2);
    const { onAnswerFailed } = this.#options;
    try {
      const answer = await this.#answerTo(request, path, query, signal);
      if (!signal.aborted) await sendResponse(response, answer, signal, hold);
    } catch (error) {
      if (error === signal.reason || isClientGone(error)) return;
      onAnswerFailed(path, error);
      if (response.headersSent) request.socket.destroy();
      else await sendResponse(response, plain(500, FAILED), signal, hold);
    }
  }

  async #answerTo(
    request: IncomingMessage,
    path: string,
    query: string,
    signal: AbortSignal,
  ): Promise<HttpResponse> {
    const { method = 'GET', headers } = request;
    const { answer, refuseBody } = this.#options;
    let body: string | undefined = '';
    if (refuseBody !== undefined) {
      body = await readBody(request);
      if (body === undefined) return refuseBody();
    } else if (method !== 'GET' && method !== 'HEAD') {
      const text = `${method} is not supported; use GET or HEAD.\n`;
      return { ...plain(405, text), headers: { allow: 'GET, HEAD' } };
    }
    return answer({ method, path, query, headers, body, signal });
  }

  /** Keeps clients ordered by their last state change. */
  #change(client: Client, state: Client['state']): void {
    client.state = state;
    if (this.#open.delete(client.socket)) this.#open.set(client.socket, client);
  }

  #drop({ socket }: Client, limit: HttpLimit): void {
    if (socket.destroyed) return;
    const remoteAddress = peerText(socket);
    socket.destroy();
    httpLimitReached.publish({ limit, remoteAddress });
  }
}

const FAILED = 'The page could not be rendered; see the log.\n';

/** Whether the client disconnected before it had read the response. */
function isClientGone(error: unknown): boolean {
  if (!(error instanceof Error && 'code' in error)) return false;
  return ['ERR_STREAM_PREMATURE_CLOSE', 'ECONNRESET', 'EPIPE'].includes(String(error.code));
}

/** Undefined if it is too long. All of it is read: closing the connection earlier could destroy the response. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size <= MAX_REQUEST_BYTES) pieces.push(piece);
  }
  return size > MAX_REQUEST_BYTES ? undefined : Buffer.concat(pieces).toString('utf8');
}
