import { setImmediate } from 'node:timers/promises';
import { KpngError } from '../errors.ts';
import { MAX_LISTED } from '../proxysocket/inspect.ts';
import {
  csvOf,
  listServices,
  MAX_ROWS,
  type ServicesQuery,
  type ServicesView,
  SORT_KEYS,
} from './services.ts';
import { describeServices, namesOf } from './details.ts';
import { failingOf, SERVICE_STATES } from '../observe/service-state.ts';
import { statusOf } from './status.ts';
import { History, type Sampler } from './sampler.ts';
import { nameHint } from '../util/suggest.ts';
import { runInParts } from '../observe/parts.ts';
import { numberOf, operation, type Operation, type OperationInput, wordOf } from './handler.ts';
import type { ProcessSubject, ProxySubject } from './subject.ts';

/** Service ports described in one piece of a dump. */
const DUMP_PIECE = 100;

export function standardOperations(subject: ProcessSubject, sampler: Sampler): Operation[] {
  const listed = async (query: ServicesQuery, signal: AbortSignal): Promise<ServicesView> => {
    const proxy = proxyOf(subject);
    return runInParts(listServices(proxy, sampler, query, await failingOf(proxy.engine)), signal);
  };
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
    {
      ...operation(
        'read services.csv search state sort order',
        'all service ports that the search and the state leave, as CSV',
        async (input, signal) =>
          csvOf((await listed({ ...servicesQuery(input), limit: Infinity }, signal)).rows),
      ),
      download: { fileName: 'services.csv', type: 'text/csv; charset=utf-8' },
    },
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
    operation('private dump', 'everything, for a bug report', (_, signal) =>
      dumpOf(subject, sampler, signal),
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
  const memory = { heapUsed, external, arrayBuffers };
  const status = await statusOf(subject, sampler, signal);
  yield `{"status":${JSON.stringify(status)}`;
  yield `,"memory":${JSON.stringify(memory)}`;
  yield `,"resources":${JSON.stringify(countsOf(process.getActiveResourcesInfo()))}`;
  yield `,"history":${JSON.stringify(sampler.history(undefined))}`;
  const proxy = subject.proxy();
  if (proxy !== undefined) {
    yield `,"connections":${JSON.stringify(await connectionsOf(proxy, {}))}`;
    yield ',"services":[';
    const names = proxy.engine.names() ?? proxy.engine.snapshot().map(({ name }) => name);
    for (let start = 0; start < names.length; start += DUMP_PIECE) {
      const some = await describeServices(proxy, sampler, names.slice(start, start + DUMP_PIECE));
      const text = some.map((each) => JSON.stringify(each)).join(',');
      if (text !== '') yield start === 0 ? text : `,${text}`;
      await setImmediate();
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
