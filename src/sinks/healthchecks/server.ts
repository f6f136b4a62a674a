import { KpngError } from '../../errors.ts';
import type { Clock } from '../../util/clock.ts';
import { formatHostPort } from '../../util/host-port.ts';
import {
  startHttpServer,
  type HttpResponse,
  type HttpServer,
  type Inherit,
} from '../../util/http-server.ts';
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

/** A server for load balancers on one address and port. */
export interface CheckServer extends HttpServer {
  /** Resolves after the first attempt to listen. */
  readonly tried: Promise<void>;
  /** Why clients are not answered; undefined: they are. */
  readonly problem: KpngError | undefined;
}

/** Answers load balancers. Failures to listen are published and retried. */
export function startCheckServer(options: CheckServerOptions): CheckServer {
  const { address, port, clock, answer, inherit, service } = options;
  const { promise: tried, resolve } = Promise.withResolvers<void>();
  let problem: KpngError | undefined;
  const server = startHttpServer({
    address: { host: address, port },
    clock,
    inherit,
    answer,
    onListening({ host }) {
      problem = undefined;
      resolve();
      healthCheckServed.publish({ service: service(), address: formatHostPort({ host, port }) });
    },
    onBindFailed({ code, reason, cause }, retryInMs) {
      const listen = address === '' ? `port ${port}` : formatHostPort({ host: address, port });
      const what = `the health-check node port cannot be opened on ${listen}`;
      const message = `${service()}: ${what}: ${reason}; retrying`;
      const error = new KpngError(code, message, { cause, servicePort: service() });
      problem = error;
      resolve();
      healthCheckFailed.publish({ service: service(), error, retryInMs });
    },
    // Responses are in memory: only the client's connection can fail.
    onAnswerFailed: () => undefined,
  });
  return {
    tried,
    get problem() {
      return problem;
    },
    get ports() {
      return server.ports;
    },
    leave: () => server.leave(),
    close() {
      resolve();
      return server.close();
    },
  };
}
