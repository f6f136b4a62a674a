import { KpngError, type ErrorCode } from '../errors.ts';
import { nodePortAddresses } from '../portal/node-addresses.ts';
import type { LocalChange, LocalSink, ServiceEntry } from '../store/local-view.ts';
import { systemClock, type Clock } from '../util/clock.ts';
import { hostAddresses, type HostAddress } from '../util/host-addresses.ts';
import { formatHostPort, type HostPort } from '../util/host-port.ts';
import type { HttpResponse } from '../util/http-connections.ts';
import { startHttpServer, type HttpServer } from '../util/http-server.ts';
import { isPort } from '../util/port-range.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import { healthCheckFailed, healthCheckServed, newProblems } from './events.ts';

export interface HealthCheckSinkOptions {
  /** Where ports are opened: networks, addresses, or `primary`, `localhost`, `all`; empty: every address of the host. */
  readonly wanted: readonly string[];
  /** Addresses of the host, read at each change set. Default: those of this one. */
  readonly host?: () => readonly HostAddress[];
  /** Whether the proxy on this node works; default: yes. */
  readonly healthy?: () => boolean;
  readonly clock?: Clock;
}

/** A server for load balancers on one address and port. */
interface CheckServer {
  readonly server: HttpServer;
  /** Resolves after the first attempt to listen. */
  readonly tried: PromiseWithResolvers<void>;
  /** Why clients are not answered; undefined: they are. */
  problem: KpngError | undefined;
}

/**
 * Answers load balancers on the health-check node ports of services: whether this node has endpoints and should get
 * traffic.
 *
 * There is one listener per port and address; it stays open when the port passes to another service. A listener that
 * cannot be opened is reported and retried; it never fails a change set.
 */
export class HealthCheckSink implements LocalSink {
  readonly #options: HealthCheckSinkOptions;
  /** By service, valid or not. */
  readonly #checks = new Map<string, HealthCheck>();
  /** By valid port. The first service keeps the port; the next one gets it as soon as it is released. */
  #claims: ReadonlyMap<number, readonly HealthCheck[]> = new Map();
  /** Servers by `address port`. */
  readonly #servers = new Map<string, CheckServer>();
  readonly #queue = new SerialQueue();
  readonly #onlyNew = newProblems();
  #closed = false;

  constructor(options: HealthCheckSinkOptions) {
    this.#options = options;
  }

  /** Ports that load balancers cannot currently query, and why. */
  get problems(): KpngError[] {
    const failed = [...this.#servers.values()].flatMap(({ problem }) => problem ?? []);
    return [...failed, ...this.#openFailures()];
  }

  /** Resolves when every new port was tried once. Never rejects. */
  sync(change: LocalChange): Promise<void> {
    return this.#queue.run(async () => {
      this.#read(change);
      await this.#settle();
      for (const error of this.#onlyNew(this.#openFailures())) {
        const service = error.servicePort ?? '';
        healthCheckFailed.publish({ service, error, retryInMs: undefined });
      }
    });
  }

  /**
   * Another process serves on the same sockets. Resolves when connected clients have been answered or have timed out.
   */
  async leave(): Promise<void> {
    this.#closed = true;
    await Promise.all(
      Array.from(this.#servers.values(), ({ server, tried }) => {
        tried.resolve();
        return server.leave();
      }),
    );
    await this.close();
  }

  /** Stops answering clients, so that load balancers use other nodes. Idempotent. */
  close(): Promise<void> {
    this.#closed = true;
    return this.#queue.run(() => this.#settle());
  }

  #read({ view, changed }: LocalChange): void {
    for (const key of changed) {
      const entry = view.get(key);
      const check = entry && healthCheckOf(entry);
      // A service with another port comes after those that already claim it.
      if (check?.port !== this.#checks.get(key)?.port) this.#checks.delete(key);
      if (check !== undefined) this.#checks.set(key, check);
    }
    const valid = [...this.#checks.values()].filter(({ port }) => isPort(port));
    this.#claims = Map.groupBy(valid, ({ port }) => port);
  }

  /** One listener serves every address of both families. */
  #addresses(): readonly string[] {
    const { wanted, host = hostAddresses } = this.#options;
    return wanted.length === 0 || wanted.includes('all') ? [''] : nodePortAddresses(wanted, host());
  }

  /** Closes unneeded servers, and then opens missing ones. */
  async #settle(): Promise<void> {
    const wanted = new Map<string, HostPort>();
    for (const host of this.#closed || this.#claims.size === 0 ? [] : this.#addresses()) {
      for (const port of this.#claims.keys()) wanted.set(`${host} ${port}`, { host, port });
    }
    const unneeded = [...this.#servers].filter(([key]) => !wanted.has(key));
    for (const [key] of unneeded) this.#servers.delete(key);
    await Promise.all(unneeded.map(([, { server }]) => server.close()));
    const opened = [...wanted].map(([key, address]) => {
      const opened = this.#servers.get(key) ?? this.#open(address);
      this.#servers.set(key, opened);
      return opened.tried.promise;
    });
    await Promise.all(opened);
  }

  /** Failures to listen are published and retried. */
  #open(address: HostPort): CheckServer {
    const { host, port } = address;
    const holder = (): HealthCheck =>
      this.#claims.get(port)?.[0] ?? { service: '/', port, localEndpoints: 0 };
    const tried = Promise.withResolvers<void>();
    const server = startHttpServer({
      address,
      clock: this.#options.clock ?? systemClock,
      answer: () => answerFor(holder(), this.#options.healthy?.() ?? true),
      onListening(bound) {
        opened.problem = undefined;
        tried.resolve();
        const { service } = holder();
        healthCheckServed.publish({ service, address: formatHostPort({ ...bound, port }) });
      },
      onBindFailed({ code, message: reason, cause }, retryInMs) {
        const { service } = holder();
        const listen = host === '' ? `port ${port}` : formatHostPort(address);
        const why = `the health-check node port cannot be opened on ${listen}: ${reason}; retrying`;
        const error = problemOf(service, code, `: ${why}`, cause);
        opened.problem = error;
        tried.resolve();
        healthCheckFailed.publish({ service, error, retryInMs });
      },
      // Responses are in memory: only the client's connection can fail.
      onAnswerFailed: () => undefined,
    });
    const opened: CheckServer = { server, tried, problem: undefined };
    return opened;
  }

  /** Problems that keep ports from being tried at all. */
  #openFailures(): KpngError[] {
    const hasAddress = this.#claims.size === 0 || this.#addresses().length > 0;
    return [...this.#checks.values()].flatMap((check) => {
      const { service, port } = check;
      if (!isPort(port)) {
        const text = `: the health-check node port ${port} is not a port from 1 to 65535`;
        return problemOf(service, 'KPNG_SERVICE_INVALID', text);
      }
      const holder = this.#claims.get(port)?.[0];
      if (holder !== check) {
        const text = ` cannot have the health-check node port ${port}: ${holder?.service} has it`;
        const hint = '; this service gets it when that one releases it';
        return problemOf(service, 'KPNG_PORTAL_CONFLICT', text + hint);
      }
      if (hasAddress) return [];
      const text = `: the host has none of the addresses on which the health-check node port ${port} is to be opened`;
      return problemOf(service, 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', text);
    });
  }
}

/** `text`: the rest of the message, after the service. */
function problemOf(service: string, code: ErrorCode, text: string, cause?: unknown): KpngError {
  return new KpngError(code, service + text, { cause, servicePort: service });
}

export interface HealthCheck {
  /** `namespace/name`. */
  readonly service: string;
  /** From the state, unvalidated. */
  readonly port: number;
  /** Number of the service's ready endpoints on this node. */
  readonly localEndpoints: number;
}

/**
 * The health check of a service: those with the policy `externalTrafficPolicy: Local` and a health-check node port
 * have one. As in kube-proxy, every local endpoint that is ready counts, for any traffic; one that serves while it
 * terminates does not, so that load balancers look elsewhere.
 */
export function healthCheckOf(entry: ServiceEntry): HealthCheck | undefined {
  const { externalTrafficToLocal, healthCheckNodePort: port } = entry.service;
  if (port === 0 || !externalTrafficToLocal) return undefined;
  const endpoints = [...entry.endpoints.values()];
  const ready = endpoints.filter(({ local, terminating = false }) => local && !terminating);
  return { service: entry.key, port, localEndpoints: ready.length };
}

/**
 * The response to a load balancer, in kube-proxy's format: 200 when this node should get traffic for the service, 503
 * when not. `healthy`: the proxy on this node works.
 */
function answerFor({ service, localEndpoints }: HealthCheck, healthy: boolean): HttpResponse {
  const [namespace, name] = service.split('/');
  const body = { service: { namespace, name }, localEndpoints, serviceProxyHealthy: healthy };
  return {
    status: localEndpoints > 0 && healthy ? 200 : 503,
    type: 'application/json',
    body: JSON.stringify(body, undefined, '\t'),
    headers: { 'x-load-balancing-endpoint-weight': String(localEndpoints) },
  };
}
