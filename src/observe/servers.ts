import type { Clock } from '../util/clock.ts';
import type { HostPort } from '../util/host-port.ts';
import {
  httpUrl,
  startHttpServer,
  type CreateServer,
  type HttpServer,
  type Inherit,
} from '../util/http-server.ts';
import type { Turn } from '../util/turn.ts';
import { bindFailureLog } from './bind-failure.ts';
import type { Guard } from './guard.ts';
import type { Health } from './health.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import { answerTo, healthPages, metricsPages, type Pages } from './pages.ts';

export interface ServersOptions {
  /** Undefined: not served. */
  readonly metricsAddress: HostPort | undefined;
  readonly healthAddress: HostPort | undefined;
  readonly health: Health;
  /** Undefined: there are none, and no `/metrics`. */
  readonly metrics: Metrics | undefined;
  /** What `/configz` shows. Default: nothing. */
  readonly configz?: () => object;
  /** What makes servers of HTTPS; undefined: plain HTTP. */
  readonly secure?: Readonly<Record<'metrics' | 'health', CreateServer | undefined>>;
  /** Gives the listening sockets of another process away. Default: there are none. */
  readonly inherit?: Inherit;
  /** When they may begin. Default: at once. */
  readonly turn?: Turn | undefined;
  /** Who may see the pages of the metrics server; undefined: everybody. */
  readonly guard?: Guard | undefined;
  readonly log: Log;
  readonly clock: Clock;
}

/**
 * Starts the servers for metrics and health. The health pages are on both, as with kube-proxy; when
 * both addresses are the same there is one server with everything.
 */
export function startServers(options: ServersOptions): HttpServer {
  const { metricsAddress, healthAddress, metrics } = options;
  const health = healthPages(options.health, metrics?.countProbe);
  const everything: Pages = new Map([
    ...(metrics === undefined ? [] : metricsPages(metrics, options.configz ?? (() => ({})))),
    ...health,
  ]);
  const servers: HttpServer[] = [];
  if (metricsAddress !== undefined)
    servers.push(start('metrics', metricsAddress, everything, options));
  if (healthAddress !== undefined && !same(metricsAddress, healthAddress)) {
    servers.push(start('health', healthAddress, health, options));
  }
  return together(servers);
}

function together(servers: readonly HttpServer[]): HttpServer {
  const all = async (work: (server: HttpServer) => Promise<void>): Promise<void> => {
    await Promise.all(servers.map(work));
  };
  return {
    get ports() {
      return servers.flatMap(({ ports }) => ports);
    },
    leave: () => all((server) => server.leave()),
    close: () => all((server) => server.close()),
  };
}

function start(
  what: 'metrics' | 'health',
  address: HostPort,
  pages: Pages,
  { log, clock, secure, guard, inherit, turn }: ServersOptions,
): HttpServer {
  const create = secure?.[what];
  const scheme = create === undefined ? 'http' : 'https';
  const check = what === 'metrics' ? guard : undefined;
  return startHttpServer({
    address,
    clock,
    inherit,
    turn,
    create,
    answer: async ({ path, headers }) =>
      (await check?.(path, headers.authorization ?? '')) ?? answerTo(path, pages),
    onListening: (bound) => log.info(`Serving ${what}`, { url: httpUrl(bound, scheme) }),
    onBindFailed: bindFailureLog(log, `Serving ${what} failed; retrying`, address),
    onAnswerFailed: (path, error) => log.error('Making a page failed', { path, err: error }),
  });
}

/** Port 0 is another port each time. */
function same(a: HostPort | undefined, b: HostPort): boolean {
  return a !== undefined && a.port !== 0 && a.port === b.port && a.host === b.host;
}
