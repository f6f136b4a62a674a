import t, { type Test } from 'tap';
import {
  EndpointBook,
  FORGET_ENDPOINT_MS,
  MAX_COUNTED_ENDPOINTS,
} from '../../src/observe/endpoint-metrics.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { Subscriptions } from '../../src/observe/subscriptions.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import * as events from '../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { scrapePage } from '../support/metrics-page.ts';
import { echoServer, request } from '../support/tcp-peers.ts';
import { TcpRig } from '../support/tcp-rig.ts';
import { until } from '../support/until.ts';

function relay(servicePort: string, endpoint: string): events.RelayAddresses {
  const addresses = { inRemoteAddress: 'a', inLocalAddress: 'b', outLocalAddress: 'c' };
  return { servicePort, endpoint, ...addresses, outRemoteAddress: endpoint };
}

function ended(addresses: events.RelayAddresses, bytesIn: number, bytesOut: number): void {
  events.relayEnded.publish({ ...addresses, bytesIn, bytesOut, durationMs: 1, reason: 'closed' });
}

/** A service port with some connections. */
function servicePort(name: string, active = 0): ServicePortSnapshot {
  const counters = { ...newCounters(), active };
  return { name, protocol: 'TCP', endpoints: 1, listeners: [], counters };
}

function setup(t: Test) {
  const subscriptions = new Subscriptions();
  t.teardown(() => subscriptions.end());
  const clock = { now: 0 };
  return { clock, book: new EndpointBook(subscriptions, () => clock.now) };
}

t.test('connections, bytes and errors of each endpoint of each service port', async (t) => {
  const { book } = setup(t);
  const first = relay('ns/web:http', '10.0.0.1:80');
  events.relayStarted.publish(first);
  events.relayStarted.publish(first);
  ended(first, 10, 200);
  const cause = 'refused';
  const error = new Error('no');
  events.connectFailed.publish({ ...first, endpoint: '10.0.0.2:80', attempt: 1, cause, error });
  events.udpSessionStarted.publish({
    servicePort: 'ns/dns:dns',
    remoteAddress: 'c',
    endpoint: '10.0.0.1:53',
  });
  const all = [servicePort('ns/web:http', 1), servicePort('ns/dns:dns', 1)];
  const counts = new Map(book.counts(all).map((each) => [each.endpoint, each]));
  t.match(counts.get('10.0.0.1:80'), {
    servicePort: 'ns/web:http',
    protocol: 'TCP',
    connections: 2,
    active: 1,
    bytesIn: 10,
    bytesOut: 200,
  });
  t.match(counts.get('10.0.0.2:80'), { connections: 0, connectErrors: 1 });
  t.match(counts.get('10.0.0.1:53'), { protocol: 'UDP', connections: 1, active: 1 });
});

t.test('series vanish with their service port, and an hour after their last event', async (t) => {
  const { book, clock } = setup(t);
  const all = [servicePort('ns/used:x', 1), servicePort('ns/idle:x'), servicePort('ns/lost:x')];
  for (const { name } of [...all, servicePort('ns/gone:x')])
    events.relayStarted.publish(relay(name, '10.0.0.1:1'));
  const names = (): string[] => book.counts(all).map((each) => each.servicePort);
  t.same(names(), ['ns/used:x', 'ns/idle:x', 'ns/lost:x'], 'the service port of one is gone');
  ended(relay('ns/idle:x', '10.0.0.1:1'), 0, 0);
  clock.now += FORGET_ENDPOINT_MS + 1;
  t.same(names(), ['ns/used:x'], 'also when the end of its connection was never reported');
});

t.test('there is a bound, whatever happens', async (t) => {
  const { book } = setup(t);
  for (let n = 0; n < MAX_COUNTED_ENDPOINTS + 10; n += 1) {
    events.relayStarted.publish(relay('ns/a:x', `endpoint-${n}`));
  }
  const counts = book.counts([servicePort('ns/a:x', 1)]);
  t.equal(counts.length, MAX_COUNTED_ENDPOINTS);
  t.equal(counts[0]?.endpoint, 'endpoint-10', 'the one that was idle for longest went');
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
      problems: () => [],
    });
    try {
      const port = await rig.serve([endpoint]);
      t.equal(events.relayStarted.hasSubscribers, perEndpoint);
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
  t.equal(asked.value('kpng_userspace_endpoint_bytes_total', { ...labels, direction: 'in' }), 5);
  const usual = await page(false);
  t.notOk([...usual.types.keys()].some((name) => name.startsWith('kpng_userspace_endpoint_')));
});
