import { once } from 'node:events';
import type { AddressInfo, Server } from 'node:net';
import type { KpngError } from '../errors.ts';
import { Activation } from './activation.ts';
import { Backoff, type BackoffPolicy } from './backoff.ts';
import type { Clock, Timer } from './clock.ts';
import type { HostPort } from './host-port.ts';
import {
  HttpConnections,
  plain,
  type HttpConnectionsOptions,
  type HttpRequest,
  type HttpResponse,
} from './http-connections.ts';
import { listenFailure } from './listen-failure.ts';
import { takeInherited } from './inherited.ts';
import { createServer } from './node-http.ts';

export interface HttpServerOptions extends Omit<HttpConnectionsOptions, 'create'> {
  readonly address: HostPort;
  /** When it may start. Default: at once. */
  readonly activation?: Activation | undefined;
  /** Creates the server. Default: plain HTTP. */
  readonly create?: HttpConnectionsOptions['create'] | undefined;
  /** Gets the bound address once the server listens. */
  readonly onListening: (address: HostPort) => void;
  /** Gets why it cannot listen (the message is the reason alone), and when that is retried. Milliseconds. */
  readonly onBindFailed: (failure: KpngError, retryInMs: number) => void;
}

/** A server that listens, or retries to. */
export type HttpServer = ReturnType<typeof startHttpServer>;

/** Delays between attempts to listen: the holder of an address may be a process that is about to end. */
const RETRY: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0 };

/**
 * Listens once `activation` allows it, or retries with growing delays, without end. `listen` rejects if it cannot listen;
 * `onFailed` gets each failure, and when it is retried. Milliseconds. Returns a function that ends the attempts and
 * resolves when none is in progress.
 */
export function keepListening(
  clock: Clock,
  activation: Activation,
  listen: (predecessor: number | undefined) => Promise<void>,
  onFailed: (error: KpngError, retryInMs: number) => void,
) {
  const backoff = new Backoff(RETRY, Math.random);
  let retry: Timer | undefined;
  let running = Promise.resolve();
  let isOver = false;
  const attempt = async (predecessor: number | undefined): Promise<void> => {
    if (isOver) return;
    try {
      await listen(predecessor);
    } catch (error) {
      if (isOver) return;
      const retryInMs = backoff.next();
      onFailed(error as KpngError, retryInMs);
      retry = clock.setTimer(retryInMs, () => void (running = attempt(predecessor)));
    }
  };
  activation.onActive((predecessor) => (running = attempt(predecessor)));
  return async (): Promise<void> => {
    isOver = true;
    retry?.cancel();
    await running;
  };
}

const listening = new Set<Server>();

/** The TCP ports on which this process serves pages now. */
export function pagePorts(): number[] {
  return [...listening].flatMap((server) => (server.address() as AddressInfo | null)?.port ?? []);
}

/** Serves GET and HEAD over TCP. Failures to listen are reported: metrics and health must never stop the proxy. */
export function startHttpServer(options: HttpServerOptions) {
  const { address, clock, create = createServer, activation = Activation.immediate() } = options;
  const connections = new HttpConnections({
    ...options,
    create,
    answer: (request) => refuseMethod(request) ?? options.answer(request),
  });
  const { server } = connections;
  // While listening, an error concerns a client that could not be accepted; Node keeps accepting.
  server.on('error', () => undefined);
  const listen = async (): Promise<void> => {
    const fd = inheritedServer(address);
    const host = address.host === '' ? {} : { host: address.host };
    server.listen(fd === undefined ? { ...host, port: address.port } : { fd });
    const events = ['listening', 'close'].map((event) => once(server, event));
    await Promise.race(events).catch(async (error: Error) => {
      throw await listenFailure(error, address);
    });
    const bound = server.address() as AddressInfo | null;
    if (bound === null) return;
    listening.add(server);
    server.once('close', () => listening.delete(server));
    options.onListening({ host: bound.address, port: bound.port });
  };
  const stop = keepListening(clock, activation, listen, options.onBindFailed);
  return {
    /**
     * Stops listening because another process now serves. Resolves when every connected client has been answered or has
     * timed out. Idempotent.
     */
    leave(): Promise<void> {
      void stop();
      return connections.leave();
    },
    /** Stops listening and closes every connection. Idempotent. */
    close(): Promise<void> {
      void stop();
      return connections.close();
    },
  };
}

/** The socket that the previous process handed over, if any; with IPv6 or without, if it is for every address. */
function inheritedServer({ host, port }: HostPort): number | undefined {
  const [first, second] = host === '' ? ['::', '0.0.0.0'] : [host];
  const fd = takeInherited('TCP', first, port);
  return fd === undefined && second !== undefined ? takeInherited('TCP', second, port) : fd;
}

function refuseMethod({ method }: HttpRequest): HttpResponse | undefined {
  if (method === 'GET' || method === 'HEAD') return undefined;
  const text = `${method} is not supported; use GET or HEAD.\n`;
  return { ...plain(405, text), headers: { allow: 'GET, HEAD' } };
}
