/** The metrics page: what is read from the data path at each scrape. */
import * as fc from 'fast-check';
import t from 'tap';
import { exposition, label, type Family } from '../../src/observe/exposition.ts';
import { Health } from '../../src/observe/health.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import {
  MAX_COUNTED_ENDPOINTS,
  servicePortFamilies,
  servicePortLabels,
} from '../../src/observe/service-port-metrics.ts';
import { HEALTH_STATES } from '../../src/observe/verdict.ts';
import {
  CONNECT_ERROR_CAUSES,
  newCounters,
  observeConnectSeconds,
  type ServicePortCounters,
} from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { connectFailed, limitChanged, relayStarted } from '../../src/proxysocket/events.ts';
import { type EndpointSnapshot, NOTHING } from '../../src/proxysocket/inspect.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import type { ListenerStatus } from '../../src/proxysocket/spec.ts';
import { measuredPort, parseMetrics, scrapePage, startMetrics } from '../support/metrics-page.ts';
import { holds } from '../support/property.ts';

function pageOf(...ports: ServicePortSnapshot[]) {
  return parseMetrics([...exposition(servicePortFamilies(), ports, servicePortLabels)].join(''));
}

type Counted = Exclude<keyof ServicePortCounters, 'connectErrors' | 'connectSeconds'>;

/** The series of each counter, without the common prefix. */
const SERIES: Readonly<Record<Counted, readonly [string, Record<string, string>?]>> = {
  connections: ['connections_total'],
  active: ['connections_active'],
  bytesIn: ['bytes_total', { direction: 'in' }],
  bytesOut: ['bytes_total', { direction: 'out' }],
  datagramsIn: ['datagrams_total', { direction: 'in' }],
  datagramsOut: ['datagrams_total', { direction: 'out' }],
  datagramsDropped: ['datagrams_dropped_total'],
  retries: ['retries_total'],
  rejectedNoEndpoint: ['rejected_total', { reason: 'no-endpoint' }],
  rejectedDrained: ['rejected_total', { reason: 'drained' }],
  rejectedConnectFailed: ['rejected_total', { reason: 'connect-failed' }],
  rejectedLimit: ['rejected_total', { reason: 'limit' }],
  rejectedSource: ['rejected_total', { reason: 'source' }],
  rejectedHoldTimeout: ['rejected_total', { reason: 'hold-timeout' }],
  rejectedProxyHeader: ['rejected_total', { reason: 'proxy-header' }],
  held: ['connections_held'],
  heldTotal: ['connections_held_total'],
  halfCloseTimeouts: ['half_close_timeouts_total'],
  idleTimeouts: ['udp_idle_timeouts_total'],
  sessionsEvicted: ['udp_sessions_evicted_total'],
};

t.test('every counter has its series; rare ones appear once they are not zero', async (t) => {
  const idle = pageOf(measuredPort('ns/a:b'));
  for (const [counter, [series, labels]] of Object.entries(SERIES)) {
    const udp = { protocol: 'UDP' } as const;
    const name = `kpng_userspace_${series}`;
    t.equal(pageOf(measuredPort('ns/a:b', { [counter]: 7 }, udp)).value(name, labels), 7, counter);
    const isRare = !/^(?:connections_(?:total|active)|bytes_total)$/.test(series);
    t.equal(idle.value(name, labels), isRare ? undefined : 0, counter);
  }
  for (const cause of CONNECT_ERROR_CAUSES) {
    const connectErrors = { ...newCounters().connectErrors, [cause]: 3 };
    const { samples } = pageOf(measuredPort('a/b:c', { connectErrors }));
    const errors = samples.filter(({ name }) => name === 'kpng_userspace_connect_errors_total');
    t.match(errors, [{ labels: { cause }, value: 3 }]);
  }
  t.equal(
    pageOf(measuredPort('a/b', { heldTotal: 5 })).value('kpng_userspace_connections_held'),
    0,
  );
});

t.test('the histogram is cumulative and ends at its count', async (t) => {
  const counters = newCounters();
  for (const seconds of [0.0005, 0.001, 0.02, 0.3, 99]) observeConnectSeconds(counters, seconds);
  const metrics = pageOf(measuredPort('a/b:c', counters));
  const name = 'kpng_userspace_connect_seconds_bucket';
  const buckets = metrics.samples.filter((sample) => sample.name === name);
  const values = buckets.map(({ value }) => value);
  t.same(values, [2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5]);
  t.same([buckets[0]?.labels['le'], buckets.at(-1)?.labels['le']], ['0.001', '+Inf']);
  t.equal(metrics.value('kpng_userspace_connect_seconds_count'), 5);
  t.equal(metrics.value('kpng_userspace_connect_seconds_sum'), 0.0005 + 0.001 + 0.02 + 0.3 + 99);
});

t.test('listeners by state', async (t) => {
  const states = ['listening', 'failed', 'failed'] as const;
  const listeners = states.map((state) => ({ state }) as ListenerStatus);
  const metrics = pageOf(measuredPort('a/b:c', {}, { listeners }));
  t.equal(metrics.value('kpng_userspace_listeners', { state: 'listening' }), 1);
  t.equal(metrics.value('kpng_userspace_listeners', { state: 'failed' }), 2);
});

t.test('no name breaks the page', async (t) => {
  const port = pageOf(measuredPort('ns/svc')).samples[0]?.labels['port'];
  t.equal(port, '', 'a service port without a port name has an empty label');
  holds(
    t,
    fc.property(fc.string({ unit: 'binary' }), fc.string(), (namespace, service) => {
      const odd = `x${namespace.replaceAll('/', '')}/${service.replaceAll(':', '')}"\\\n:p`;
      const [sample] = pageOf(measuredPort(odd)).samples;
      const { namespace: read, service: readService, port } = sample?.labels ?? {};
      return `${read}/${readService}:${port}` === odd;
    }),
  );
});

t.test('numbers that are none are spelt as Prometheus wants them', async (t) => {
  const write: Family<number>['write'] = (value, out) => out(value);
  const values = [1.5, 1e21, Number.NaN, Infinity, -Infinity];
  const families = { x: { type: 'gauge', help: 'x', write } } as const;
  const lines = [...exposition(families, values, () => label('a', 'b'))].join('').split('\n');
  const spelt = ['1.5', '1e+21', 'NaN', '+Inf', '-Inf'];
  t.same(
    lines.slice(2, -1),
    spelt.map((value) => `x{a="b"} ${value}`),
  );
});

t.test('limits, their use, how often they were reached, and problems', async (t) => {
  const limits = { ...DEFAULT_LIMITS };
  const problems = [
    { code: 'KPNG_LISTEN_PERMISSION', count: 2 },
    { code: 'KPNG_LISTEN_PERMISSION', count: 1 },
  ];
  const ports = [
    measuredPort('a/b:c', { active: 3 }),
    measuredPort('a/c:c', { active: 4 }),
    measuredPort('a/d:c', { active: 5 }, { protocol: 'UDP' }),
  ];
  const { page } = startMetrics(t, ports, { limits, problems: () => problems });
  limitChanged.publish({ limit: 'max-connections', value: 7, reached: true });
  limitChanged.publish({ limit: 'max-connections', value: 7, reached: false });
  limitChanged.publish({ limit: 'reserved-descriptors', value: 7, reached: true });
  const first = await page();
  for (const [name, limit, value] of [
    ['limit', 'max-connections', 100_000],
    // In seconds, and the sum of several.
    ['limit', 'udp-idle-timeout', 30],
    ['limit', 'connect-timeouts', 3.75],
    ['limit_used', 'max-connections', 7],
    ['limit_used', 'max-udp-sessions', 5],
    ['limit_reached_total', 'max-connections', 1],
    ['limit_reached_total', 'reserved-descriptors', 1],
  ] as const)
    t.equal(first.value(`kpng_userspace_${name}`, { limit }), value, `${name} ${limit}`);
  t.equal(first.value('kpng_userspace_problems', { code: 'KPNG_LISTEN_PERMISSION' }), 3);
  limits.maxConnections = 70;
  t.equal((await page()).value('kpng_userspace_limit', { limit: 'max-connections' }), 70);
});

t.test('two scrapes at once get the same values', async (t) => {
  const health = new Health();
  health.failing('portalFailing', { code: 'KPNG_PORTAL_FAILED', what: 'the rules' });
  const both = Promise.withResolvers<void>();
  let waiting = 0;
  const verdict = async () => {
    waiting += 1;
    if (waiting === 2) both.resolve();
    await both.promise;
    return health.verdict;
  };
  const metrics = createMetrics({ version: '0', verdict });
  t.teardown(() => metrics.close());
  for (const page of await Promise.all([scrapePage(metrics), scrapePage(metrics)])) {
    t.equal(page.value('kpng_userspace_build_info'), 1);
    t.not(health.verdict.reasons.length, 0);
    for (const { code, state } of health.verdict.reasons) {
      t.equal(page.value('kpng_userspace_health', { reason: code }), HEALTH_STATES.indexOf(state));
    }
  }
});

t.test('endpoints that were used have series on request, within a bound', async (t) => {
  const none = { active: 0, connections: 0, bytesIn: 0, bytesOut: 0, errors: 0, failing: false };
  const servicePort = 'ns/web:http';
  const endpoint = (name: string, more: Partial<EndpointSnapshot>): EndpointSnapshot => {
    return { ...none, servicePort, endpoint: name, ...more };
  };
  const used = Array.from({ length: MAX_COUNTED_ENDPOINTS + 10 }, (_, index) =>
    endpoint(`endpoint-${index}`, { connections: 1 }),
  );
  const busy = endpoint('busy', { active: 2, connections: 3, bytesIn: 4, bytesOut: 5 });
  const endpoints = [endpoint('idle', {}), endpoint('dead', { errors: 6 }), busy, ...used];
  const dataPath = { inspect: async () => ({ ...NOTHING, endpoints }) };
  const found = await startMetrics(t, [measuredPort(servicePort)], dataPath, {
    perEndpoint: true,
  }).page();
  t.equal(relayStarted.hasSubscribers, false, 'no connection is published for it');
  const names = new Set(found.samples.flatMap(({ labels }) => labels['endpoint'] ?? []));
  t.notOk(names.has('idle'));
  t.equal(names.size, MAX_COUNTED_ENDPOINTS);
  for (const [name, labels, value] of [
    ['connections_total', { endpoint: 'busy', protocol: 'TCP', service: 'web' }, 3],
    ['connections_active', { endpoint: 'busy' }, 2],
    ['bytes_total', { endpoint: 'busy', direction: 'in' }, 4],
    ['bytes_total', { endpoint: 'busy', direction: 'out' }, 5],
    ['connect_errors_total', { endpoint: 'dead' }, 6],
    ['connect_errors_total', { endpoint: 'busy' }, undefined],
  ] as const) {
    t.equal(found.value(`kpng_userspace_endpoint_${name}`, labels), value, name);
  }
  const { types } = await startMetrics(t, [measuredPort(servicePort)], dataPath).page();
  t.notOk([...types.keys()].some((name) => name.startsWith('kpng_userspace_endpoint_')));
});

t.test('exemplars: OpenMetrics names the endpoint that failed last, if asked to', async (t) => {
  const refused = (name: string) =>
    measuredPort(name, { connectErrors: { ...newCounters().connectErrors, refused: 1 } });
  const ports = [refused('ns/a:http'), refused('ns/b:http')];
  const failed = { servicePort: 'ns/a:http', attempt: 1, cause: 'refused' } as const;
  const fails = (endpoint: string): void =>
    connectFailed.publish({ ...failed, endpoint, error: new Error('refused') });
  const errors = async (
    { metrics }: ReturnType<typeof startMetrics>,
    text: 'openmetrics' | 'prometheus' = 'openmetrics',
  ): Promise<string[]> => {
    let page = '';
    for await (const piece of metrics.render(text)) page += piece;
    return page.match(/^kpng_userspace_connect_errors_total\{.*/gm) ?? [];
  };
  const usual = startMetrics(t, ports);
  t.notOk(connectFailed.hasSubscribers);
  const asked = startMetrics(t, ports, {}, { exemplars: true });
  fails('10.0.0.1:80');
  fails('[fd00::2]:80');
  const [first, second] = await errors(asked);
  t.match(first, /service="a"\S+cause="refused"} 1 # {endpoint="\[fd00::2\]:80"} 1 \d+(\.\d+)?$/);
  t.match(second, /cause="refused"} 1$/, 'nothing has failed there since the start');
  t.notMatch(await errors(asked, 'prometheus'), / # /, 'the other format has none');
  t.match(await errors(usual), [/} 1$/, /} 1$/], 'none by default');
  const [removed] = ports.splice(0, 1);
  await errors(asked);
  if (removed !== undefined) ports.unshift(removed);
  t.match((await errors(asked))[0], /} 1$/, 'forgotten with its service port');
});
