import t, { type Test } from 'tap';
import { MAX_COUNTED_ENDPOINTS } from '../../src/observe/endpoint-metrics.ts';
import { createMetrics, type MeasuredDataPath } from '../../src/observe/metrics.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import * as events from '../../src/proxysocket/events.ts';
import { type EndpointSnapshot, NOTHING } from '../../src/proxysocket/inspect.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { scrapePage, type MetricsPage } from '../support/metrics-page.ts';
import { echoServer, request } from '../support/tcp-peers.ts';
import { TcpRig } from '../support/tcp-rig.ts';
import { until } from '../support/until.ts';

/** A data path with one service port, whose endpoints are `endpoints`. */
function dataPathOf(endpoints: readonly Partial<EndpointSnapshot>[]): MeasuredDataPath {
  const servicePort = 'ns/web:http';
  const none = { active: 0, connections: 0, bytesIn: 0, bytesOut: 0, errors: 0, failing: false };
  return {
    engine: 'node',
    portal: 'none',
    limits: DEFAULT_LIMITS,
    snapshot: () => [
      { name: servicePort, protocol: 'TCP', endpoints: 1, listeners: [], counters: newCounters() },
    ],
    problems: () => [],
    inspect: async ({ servicePorts = [] }) => ({
      ...NOTHING,
      endpoints: endpoints
        .filter(() => servicePorts.includes(servicePort))
        .map((each) => Object.assign({ ...none, servicePort, endpoint: '' }, each)),
    }),
  };
}

async function pageOf(t: Test, dataPath: MeasuredDataPath): Promise<MetricsPage> {
  const metrics = createMetrics({ version: '0', perEndpoint: true });
  t.teardown(() => metrics.close());
  metrics.observe(dataPath);
  return scrapePage(metrics);
}

t.test('endpoints that were used have series, within a bound', async (t) => {
  const used = Array.from({ length: MAX_COUNTED_ENDPOINTS + 10 }, (_, index) => {
    return { endpoint: `endpoint-${index}`, connections: 1 };
  });
  const page = await pageOf(
    t,
    dataPathOf([{ endpoint: 'idle' }, { endpoint: 'dead', errors: 2 }, ...used]),
  );
  const endpoints = new Set(
    page.samples.flatMap(({ labels }) =>
      labels['endpoint'] === undefined ? [] : labels['endpoint'],
    ),
  );
  t.notOk(endpoints.has('idle'));
  t.equal(endpoints.size, MAX_COUNTED_ENDPOINTS);
  t.equal(page.value('kpng_userspace_endpoint_connect_errors_total', { endpoint: 'dead' }), 2);
});

t.test('on the page only on request, of real connections', async (t) => {
  const rig = new TcpRig(t);
  const { endpoint } = await echoServer(t);
  const page = async (perEndpoint: boolean) => {
    const metrics = createMetrics({ version: '0', perEndpoint });
    metrics.observe({
      engine: 'node',
      portal: 'none',
      limits: DEFAULT_LIMITS,
      snapshot: () => rig.engine.snapshot(),
      inspect: async (query) => (await rig.engine.inspect?.(query)) ?? NOTHING,
      problems: () => [],
    });
    try {
      const port = await rig.serve([endpoint]);
      t.equal(events.relayStarted.hasSubscribers, false, 'no connection is published for it');
      await request(t, port, 'hello');
      await until(() => rig.counters.active === 0);
      return await scrapePage(metrics);
    } finally {
      metrics.close();
    }
  };
  const asked = await page(true);
  const labels = { endpoint: `${endpoint.address}:${endpoint.port}`, protocol: 'TCP' };
  t.equal(asked.value('kpng_userspace_endpoint_connections_total', labels), 1);
  t.equal(asked.value('kpng_userspace_endpoint_connections_active', labels), 0);
  t.equal(asked.value('kpng_userspace_endpoint_bytes_total', { ...labels, direction: 'in' }), 5);
  const usual = await page(false);
  t.notOk([...usual.types.keys()].some((name) => name.startsWith('kpng_userspace_endpoint_')));
});
