import { KpngError } from '../../errors.ts';
import type { Clock } from '../../util/clock.ts';
import { formatHostPort } from '../../util/host-port.ts';
import {
  startHttpServer,
  type HttpResponse,
  type HttpServer,
  type Inherit,
} from '../../util/http-server.ts';
import type { ListenFailure } from '../../util/listen-code.ts';
import { healthCheckFailed, healthCheckServed } from '../events.ts';

export interface CheckServerOptions {
  /** IP literal; empty: every address of the host. */
  readonly address: string;
  readonly port: number;
  readonly clock: Clock;
  readonly inherit?: Inherit | undefined;
  /** The service that has the port now. */
  readonly service: () => string;
  readonly answer: () => HttpResponse;
}

/** Answers load balancers on one address and port. */
export class CheckServer {
  readonly #options: CheckServerOptions;
  readonly #server: HttpServer;
  readonly #tried = Promise.withResolvers<void>();
  #problem: KpngError | undefined;

  constructor(options: CheckServerOptions) {
    const { address, port, clock, answer, inherit } = options;
    this.#options = options;
    this.#server = startHttpServer({
      address: { host: address, port },
      clock,
      inherit,
      answer,
      onListening: ({ host }) => this.#served(host),
      onBindFailed: (failure, retryInMs) => this.#failed(failure, retryInMs),
      // Responses are in memory: only the client's connection can fail.
      onAnswerFailed: () => undefined,
    });
  }

  /** Resolves after the first attempt. */
  get tried(): Promise<void> {
    return this.#tried.promise;
  }

  /** Why clients are not answered; undefined: they are. */
  get problem(): KpngError | undefined {
    return this.#problem;
  }

  get ports(): readonly number[] {
    return this.#server.ports;
  }

  /** Another process now serves; see `HttpServer`. `close` then waits for the same. */
  async leave(): Promise<void> {
    await this.#server.leave();
  }

  /** Idempotent. */
  async close(): Promise<void> {
    this.#tried.resolve();
    await this.#server.close();
  }

  #served(host: string): void {
    this.#problem = undefined;
    this.#tried.resolve();
    if (!healthCheckServed.hasSubscribers) return;
    const { service, port } = this.#options;
    healthCheckServed.publish({
      service: service(),
      address: formatHostPort({ host, port }),
    });
  }

  #failed({ code, reason, cause }: ListenFailure, retryInMs: number): void {
    const { address, port, service } = this.#options;
    const listen = address === '' ? `port ${port}` : formatHostPort({ host: address, port });
    const error = new KpngError(
      code,
      `${service()}: the health-check node port cannot be opened on ${listen}: ${reason}; retrying`,
      { cause, servicePort: service() },
    );
    this.#problem = error;
    this.#tried.resolve();
    if (!healthCheckFailed.hasSubscribers) return;
    healthCheckFailed.publish({ service: service(), error, retryInMs });
  }
}
