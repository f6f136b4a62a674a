import { KpngError } from '../errors.ts';
import { formatHostPort, type HostPort } from '../util/host-port.ts';
import type { CreateServer } from '../util/http-connections.ts';
import { type HttpServer, type HttpServerOptions, startHttpServer } from '../util/http-server.ts';
import type { Guard } from './access.ts';
import type { Health } from './health.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import { answerTo, healthPages, metricsPages, type Pages } from './pages.ts';

export interface ServersOptions extends Pick<LoggedServerOptions, 'log' | 'clock' | 'activation'> {
  /** Undefined: not served. */
  readonly metricsAddress: HostPort | undefined;
  readonly healthAddress: HostPort | undefined;
  readonly health: Health;
  /** Undefined: no metrics, and no `/metrics`. */
  readonly metrics: Metrics | undefined;
  /** The content of `/configz`. Default: empty. */
  readonly configz?: () => object;
  /** Creates HTTPS servers; undefined: plain HTTP. */
  readonly secure?: Readonly<Record<'metrics' | 'health', CreateServer | undefined>>;
  /** Access to the pages of the metrics server; undefined: unrestricted. */
  readonly guard?: Guard | undefined;
}

/**
 * Starts the servers for metrics and health. The health pages are on both, as with kube-proxy; if both addresses are
 * equal, one server serves everything.
 */
export function startServers(options: ServersOptions): HttpServer[] {
  const { metricsAddress, healthAddress, metrics, configz = () => ({}) } = options;
  const { log, clock, activation } = options;
  const start = (what: 'metrics' | 'health', address: HostPort, pages: Pages, guard?: Guard) =>
    startLoggedServer({
      what,
      address,
      create: options.secure?.[what],
      answer: async ({ path, headers }) =>
        (await guard?.(path, headers.authorization ?? '')) ?? answerTo(path, headers, pages),
      log,
      clock,
      activation,
    });
  const health = healthPages(options.health, metrics);
  const servers: HttpServer[] = [];
  if (metricsAddress !== undefined) {
    const pages = { ...(metrics && metricsPages(metrics, configz)), ...health };
    servers.push(start('metrics', metricsAddress, pages, options.guard));
  }
  if (healthAddress !== undefined && !same(metricsAddress, healthAddress)) {
    servers.push(start('health', healthAddress, health));
  }
  return servers;
}

export interface LoggedServerOptions extends Omit<
  HttpServerOptions,
  'onListening' | 'onBindFailed' | 'onAnswerFailed'
> {
  /** What it serves, for the log. */
  readonly what: string;
  readonly log: Pick<Log, 'info' | 'warn' | 'error'>;
  /** Gets the bound address once the server listens. */
  readonly onListening?: (address: HostPort) => void;
}

/** Starts a server; logs where it listens, why it cannot listen, and which pages could not be rendered. */
export function startLoggedServer(options: LoggedServerOptions): HttpServer {
  const { what, log, address, create } = options;
  let logged = '';
  return startHttpServer({
    ...options,
    onListening(bound) {
      const scheme = create === undefined ? 'http' : 'https';
      log.info(`Serving ${what}`, { url: `${scheme}://${formatHostPort(bound)}` });
      options.onListening?.(bound);
    },
    onBindFailed({ code, message: reason, cause }, retryInMs) {
      // Once per reason rather than per attempt: another program may hold the address for days.
      if (reason === logged) return;
      logged = reason;
      const text = formatHostPort(address);
      const err = new KpngError(code, `cannot listen on ${text}: ${reason}`, { cause });
      log.warn(`Serving ${what} failed; retrying`, { address: text, err, retryInMs });
    },
    onAnswerFailed: (path, error) => log.error('Rendering a page failed', { path, err: error }),
  });
}

/** With port 0, the kernel chooses a different port each time. */
function same(a: HostPort | undefined, b: HostPort): boolean {
  return a !== undefined && a.port !== 0 && a.port === b.port && a.host === b.host;
}
