import { KpngError } from '../errors.ts';
import { MAX_LISTED } from '../proxysocket/inspect.ts';
import { LIMIT_NAMES } from '../proxysocket/limits.ts';
import { csvOf, listServices, MAX_ROWS, type ServicesQuery, SORT_KEYS } from './services.ts';
import { describeServices, namesOf } from './details.ts';
import {
  inTurns,
  partsOf,
  SERVICE_STATES,
  type ServiceSummary,
  summaryOf,
  type Traffic,
} from '../observe/service-state.ts';
import { History, type Sampler } from './sampler.ts';
import { JSON_TYPE } from '../util/http-connections.ts';
import { nameHint } from '../util/suggest.ts';
import { numberOf, operation, type Operation, type OperationInput, wordOf } from './handler.ts';
import type { ProcessSubject, ProxySubject } from './subject.ts';

/** Service ports described in one piece of a dump. */
const DUMP_PIECE = 100;

export function standardOperations(subject: ProcessSubject, sampler: Sampler): Operation[] {
  const listed = (query: ServicesQuery, signal: AbortSignal) =>
    listServices(proxyOf(subject), sampler, query, signal);
  return [
    operation(
      'read status',
      'the process, its health, and totals of all service ports',
      (_, signal) => statusOf(subject, sampler, signal),
    ),
    operation(
      'read services search state sort order offset limit',
      'a page of the service ports',
      (input, signal) => listed(servicesQuery(input), signal),
    ),
    operation(
      'read services.csv search state sort order',
      'all service ports that the search and the state leave, as CSV',
      (input, signal) => listed({ ...servicesQuery(input), limit: Infinity }, signal),
      ({ rows }) => ({
        status: 200,
        type: 'text/csv; charset=utf-8',
        headers: { 'content-disposition': 'attachment; filename="services.csv"' },
        body: csvOf(rows),
      }),
    ),
    operation(
      'read service name',
      'everything about one service port, or the ports of one service',
      async ({ name = '' }) => {
        const proxy = proxyOf(subject);
        return { services: await describeServices(proxy, sampler, namedPorts(proxy, name)) };
      },
    ),
    operation(
      'read history service',
      'the last five minutes of one service port, or of all together',
      ({ service = '' }) => {
        if (service === '') return sampler.history(undefined);
        const [name = ''] = namedPorts(proxyOf(subject), service);
        return sampler.history(name) ?? new History().view(name);
      },
    ),
    operation(
      'private connections service limit',
      'open connections and sessions, the oldest first',
      (input) => connectionsOf(proxyOf(subject), input),
    ),
    operation(
      'private dump',
      'everything, for a bug report',
      (_, signal) => dumpOf(subject, sampler, signal),
      (body) => ({ status: 200, type: JSON_TYPE, body }),
    ),
  ];
}

/** Throws KPNG_ADMIN_REFUSED when the process does not proxy, or not yet. */
export function proxyOf(subject: ProcessSubject): ProxySubject {
  const proxy = subject.proxy();
  if (proxy !== undefined) return proxy;
  throw new KpngError(
    'KPNG_ADMIN_REFUSED',
    `this process (${subject.command}) does not proxy, or not yet`,
  );
}

/** The service ports with a name. Throws KPNG_ADMIN_REFUSED if there is none. */
function namedPorts(proxy: ProxySubject, name: string): string[] {
  if (name === '') throw new KpngError('KPNG_USAGE', 'name a service: namespace/name[:port]');
  const names = namesOf(proxy, name);
  if (names.length > 0) return names;
  const hint = nameHint(
    name,
    proxy.desired().map(({ spec }) => spec.name),
  );
  throw new KpngError('KPNG_ADMIN_REFUSED', `there is no service ${JSON.stringify(name)}${hint}`);
}

function servicesQuery(input: OperationInput): ServicesQuery {
  return {
    search: input['search'] ?? '',
    state: wordOf(input, 'state', ['all', 'traffic', 'problems', ...SERVICE_STATES]),
    sort: wordOf(input, 'sort', SORT_KEYS),
    reverse: wordOf(input, 'order', ['normal', 'reverse']) === 'reverse',
    offset: numberOf(input, 'offset', { min: 0, max: 10_000_000, byDefault: 0 }),
    limit: numberOf(input, 'limit', { min: 0, max: MAX_ROWS, byDefault: 100 }),
  };
}

/** There may be more connections than `matched` if the list is not `complete`. */
export type ConnectionsView = Awaited<ReturnType<typeof connectionsOf>>;
export type ConnectionView = ConnectionsView['connections'][number];

async function connectionsOf(proxy: ProxySubject, input: OperationInput) {
  const { service = '' } = input;
  const maxConnections = numberOf(input, 'limit', { min: 0, max: MAX_LISTED, byDefault: 100 });
  const names = service === '' ? undefined : namedPorts(proxy, service);
  const { matched, complete, connections } = await proxy.engine.inspect({
    maxConnections,
    ...(names !== undefined && { servicePorts: names }),
  });
  const views = connections.map(({ ageMs, ...rest }) =>
    Object.assign(rest, { ageSeconds: Math.round(ageMs / 100) / 10 }),
  );
  return { matched, complete, connections: views };
}

/** In pieces, so that traffic is served in between. */
async function* dumpOf(
  subject: ProcessSubject,
  sampler: Sampler,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const { heapUsed, external, arrayBuffers } = process.memoryUsage();
  const proxy = subject.proxy();
  const whole = {
    status: await statusOf(subject, sampler, signal),
    memory: { heapUsed, external, arrayBuffers },
    resources: countsOf(process.getActiveResourcesInfo()),
    history: sampler.history(undefined),
    ...(proxy && { connections: await connectionsOf(proxy, {}) }),
  };
  yield JSON.stringify(whole).slice(0, -1);
  if (proxy !== undefined) {
    yield ',"services":[';
    let separator = '';
    for await (const names of inTurns(partsOf(proxy.engine.names(), DUMP_PIECE))) {
      const some = await describeServices(proxy, sampler, names);
      const text = some.map((each) => JSON.stringify(each)).join(',');
      if (text !== '') yield separator + text;
      if (text !== '') separator = ',';
    }
    yield ']';
  }
  yield '}\n';
}

function countsOf(words: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}

export type StatusView = Awaited<ReturnType<typeof statusOf>>;
export type SourceView = NonNullable<StatusView['source']>;
export type ProxyView = NonNullable<StatusView['proxy']>;

/** The process, its health, and the totals of all service ports. May stop, with the signal's reason, when it aborts. */
export async function statusOf(
  subject: ProcessSubject,
  rates: Pick<Sampler, 'rates'>,
  signal?: AbortSignal,
) {
  const { health, log, version, command, nodeName } = subject;
  const proxy = subject.proxy();
  const uptime = process.uptime();
  const summary = proxy && (await summaryOf(proxy, signal));
  if (summary !== undefined) health.change({ services: summary });
  return {
    process: {
      pid: process.pid,
      version,
      node: process.versions.node,
      platform: `${process.platform} ${process.arch}`,
      startedAt: new Date(Date.now() - uptime * 1000).toISOString(),
      uptimeSeconds: Math.floor(uptime),
      command,
      nodeName: nodeName ?? null,
      successor: health.facts.replacedBy ?? null,
      rssBytes: process.memoryUsage.rss(),
    },
    health: health.verdict,
    source: sourceOf(subject),
    logLevel: log.verbosity,
    proxy: proxy && summary ? proxyView(proxy, summary, rates.rates) : null,
  };
}

function sourceOf({ health }: ProcessSubject) {
  const { source, sourceLost } = health.facts;
  if (source === undefined) return null;
  const { name, syncedAt } = source;
  return {
    name,
    connected: sourceLost === undefined,
    syncedAt: syncedAt === undefined ? null : new Date(syncedAt).toISOString(),
    syncAgeSeconds: syncedAt === undefined ? null : Math.round((Date.now() - syncedAt) / 1000),
  };
}

function proxyView(subject: ProxySubject, summary: ServiceSummary, rates: Traffic) {
  const { active } = summary;
  const { maxConnections, maxUdpSessions, maxHeldConnections, holdTimeoutMs } = subject.limits;
  const held = {
    limit: LIMIT_NAMES.maxHeldConnections,
    used: active.held,
    max: maxHeldConnections,
  };
  return {
    ...summary,
    engine: subject.engine.kind,
    portal: subject.portal,
    rates,
    limits: [
      { limit: LIMIT_NAMES.maxConnections, used: active.tcp + active.held, max: maxConnections },
      { limit: LIMIT_NAMES.maxUdpSessions, used: active.udp, max: maxUdpSessions },
      ...(holdTimeoutMs > 0 ? [held] : []),
    ],
    problems: subject.problems(),
    drains: subject.proxier.drains.list(),
  };
}
