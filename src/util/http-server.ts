import { Backoff, type BackoffPolicy } from './backoff.ts';
import type { Clock, Timer } from './clock.ts';
import type { HostPort } from './host-port.ts';
import { HttpConnections, type HttpConnectionsOptions } from './http-connections.ts';
import { Activation } from './activation.ts';
import { listenFailure, type ListenFailure } from './listen-failure.ts';
import { createServer } from './node-http.ts';

export { json, JSON_TYPE, plain, type HttpResponse, type HttpRequest } from './http-response.ts';
export type { CreateServer } from './http-connections.ts';
export { MAX_HTTP_CONNECTIONS } from './http-limits.ts';

export interface HttpServerOptions extends Omit<HttpConnectionsOptions, 'create' | 'refuseBody'> {
  readonly address: HostPort;
  readonly clock: Clock;
  /** The previous process's listening socket for the address. Default: none. */
  readonly inherit?: Inherit | undefined;
  /** When it may start. Default: at once. */
  readonly activation?: Activation | undefined;
  /** Creates the server. Default: plain HTTP. */
  readonly create?: HttpConnectionsOptions['create'] | undefined;
  /** Gets the bound address once the server listens. */
  readonly onListening: (address: HostPort) => void;
  /** Gets each failure to listen, and when it is retried. Milliseconds. */
  readonly onBindFailed: (failure: ListenFailure, retryInMs: number) => void;
}

/** Returns an inherited descriptor. The address may be empty: every address of the host. */
export type Inherit = (address: HostPort) => number | undefined;

/** A server that listens, or retries to. */
export interface HttpServer {
  /** The ports that it listens on now. */
  readonly ports: readonly number[];
  /**
   * Stops listening because another process now serves. Resolves when every connected client has been answered or has
   * timed out. Idempotent.
   */
  leave(): Promise<void>;
  /** Stops listening and closes every connection. Idempotent. */
  close(): Promise<void>;
}

/** Delays between attempts to listen. */
const RETRY: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0 };

/**
 * Serves GET and HEAD over TCP. If it cannot listen, that is reported and retried with growing delays, without end:
 * metrics and health must never stop the proxy.
 */
export function startHttpServer(options: HttpServerOptions): HttpServer {
  const { address, clock, create = createServer, activation = Activation.immediate() } = options;
  const connections = new HttpConnections({ ...options, create });
  const { server } = connections;
  const backoff = new Backoff(RETRY, Math.random);
  let retry: Timer | undefined;
  let closed = false;
  const listen = (fd?: number): void => {
    const host = address.host === '' ? {} : { host: address.host };
    server.listen(fd === undefined ? { ...host, port: address.port } : { fd });
  };
  server.on('listening', () => {
    const bound = server.address();
    if (bound === null || typeof bound !== 'object') return;
    options.onListening({ host: bound.address, port: bound.port });
  });
  const failed = async (error: NodeJS.ErrnoException): Promise<void> => {
    // While listening, an error concerns a client that could not be accepted; Node keeps accepting.
    if (closed || server.listening) return;
    const failure = await listenFailure(error, address);
    if (closed) return;
    const retryInMs = backoff.next();
    options.onBindFailed(failure, retryInMs);
    retry = clock.setTimer(retryInMs, () => listen());
  };
  server.on('error', (error) => void failed(error));
  activation.onActive(() => {
    if (!closed) listen(options.inherit?.(address));
  });
  const stop = (): void => {
    closed = true;
    retry?.cancel();
  };
  return {
    get ports() {
      const bound = server.address();
      return bound !== null && typeof bound === 'object' ? [bound.port] : [];
    },
    leave() {
      stop();
      return connections.leave();
    },
    close() {
      stop();
      return connections.close();
    },
  };
}
