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

/** The series of a service port, a family on each line, without the common prefix. */
function seriesOf(port: ServicePortSnapshot): string {
  const [, ...families] = [...exposition(servicePortFamilies(), [port], () => '')]
    .join('')
    .replaceAll('kpng_userspace_', '')
    .split(/^# HELP .*\n# TYPE .*\n/m);
  const lines = families.filter((text) => text !== '').map((text) => text.trim().split('\n'));
  return lines.map((each) => `\n${each.join(', ').replaceAll(/, \w+\{/g, ', {')}`).join('');
}

const IDLE = `
connections_total 0
connections_active 0
bytes_total{direction="in"} 0, {direction="out"} 0
endpoints 1
listeners{state="listening"} 0`;

const BUSY = `
connections_total 1
connections_active 2
bytes_total{direction="in"} 3, {direction="out"} 4
datagrams_total{direction="in"} 5, {direction="out"} 6
datagrams_dropped_total 7
connect_seconds_bucket{le="0.001"} 2, {le="0.0025"} 2, {le="0.005"} 2, {le="0.01"} 2, {le="0.025"} 3, {le="0.05"} 3, {le="0.1"} 3, {le="0.25"} 3, {le="0.5"} 4, {le="1"} 4, {le="2.5"} 4, {le="+Inf"} 5, connect_seconds_sum 99.3215, connect_seconds_count 5
connect_errors_total{cause="refused"} 21, {cause="timeout"} 22, {cause="unreachable"} 23, {cause="reset"} 24, {cause="loop"} 25, {cause="limit"} 26, {cause="other"} 27
retries_total 9
rejected_total{reason="no-endpoint"} 10, {reason="drained"} 11, {reason="connect-failed"} 12, {reason="limit"} 13, {reason="source"} 14, {reason="hold-timeout"} 15, {reason="proxy-header"} 16
connections_held 17
connections_held_total 18
half_close_timeouts_total 19
udp_idle_timeouts_total 20
udp_sessions_evicted_total 8
endpoints 1
listeners{state="listening"} 1, {state="failed"} 2`;

t.test('every counter has its series; rare ones appear once they are not zero', async (t) => {
  t.equal(seriesOf(measuredPort('ns/a')), IDLE);
  let last = 0;
  const text = JSON.stringify(newCounters()).replaceAll(/\b0\b/g, () => String((last += 1)));
  const counters = JSON.parse(text) as ServicePortCounters;
  counters.connectSeconds = newCounters().connectSeconds;
  for (const seconds of [0.0005, 0.001, 0.02, 0.3, 99]) observeConnectSeconds(counters, seconds);
  const listeners = ['listening', 'failed', 'failed'].map((state) => ({ state }) as ListenerStatus);
  t.equal(seriesOf(measuredPort('ns/a', counters, { protocol: 'UDP', listeners })), BUSY);
  const past = measuredPort('ns/a', { heldTotal: 5 });
  const held = '\nconnections_held 0\nconnections_held_total 5\nendpoints';
  t.equal(seriesOf(past), IDLE.replace('\nendpoints', held));
});

t.test('no name breaks the page', async (t) => {
  const labelsOf = (name: string) => {
    const text = `x{${servicePortLabels(measuredPort(name))}} 1\n`;
    return parseMetrics(`# TYPE x gauge\n${text}`).samples[0]?.labels ?? {};
  };
  t.same(labelsOf('ns/svc'), { namespace: 'ns', service: 'svc', port: '', protocol: 'TCP' });
  const text = fc.string({ unit: 'binary' });
  const property = fc.property(text, fc.string(), (namespace, service) => {
    const odd = `x${namespace.replaceAll('/', '')}/${service.replaceAll(':', '')}"\\\n:p`;
    const read = labelsOf(odd);
    return `${read['namespace']}/${read['service']}:${read['port']}` === odd;
  });
  holds(t, property);
});

t.test('numbers that are none are spelt as Prometheus wants them', async (t) => {
  const write: Family<number>['write'] = (value, out) => out(value);
  const values = [1.5, 1e21, Number.NaN, Infinity, -Infinity];
  const page = exposition([{ type: 'gauge', name: 'x', help: 'x', write }], values, () =>
    label('a', 'b'),
  );
  const spelt = ['1.5', '1e+21', 'NaN', '+Inf', '-Inf'].map((value) => `x{a="b"} ${value}\n`);
  t.equal([...page].join(''), `# HELP x x\n# TYPE x gauge\n${spelt.join('')}`);
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
  const dataPath = { engine: { inspect: async () => ({ ...NOTHING, endpoints }) } };
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
