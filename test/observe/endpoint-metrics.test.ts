import { Registry } from 'prom-client';
import t, { type Test } from 'tap';
import { kubeTriggered } from '../../src/kube/events.ts';
import {
  EndpointBook,
  FORGET_ENDPOINT_MS,
  MAX_COUNTED_ENDPOINTS,
} from '../../src/observe/endpoint-metrics.ts';
import { addEventMetrics } from '../../src/observe/event-metrics.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { Subscriptions } from '../../src/util/channel.ts';
import { proxierSynced } from '../../src/proxier/events.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import * as events from '../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { sourceSynced } from '../../src/store/events.ts';
import { scrapePage, parseMetrics, type MetricsPage } from '../support/metrics-page.ts';
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

const T0 = Date.UTC(2026, 0, 1);
const NAME = 'kubeproxy_network_programming_duration_seconds';

function programmingSetup(t: Test) {
  const registry = new Registry();
  const subscriptions = new Subscriptions();
  t.teardown(() => subscriptions.end());
  const clock = { now: T0 };
  const now = (): number => clock.now;
  addEventMetrics(registry, subscriptions, { now, monotonic: now });
  const page = async (): Promise<MetricsPage> => parseMetrics(`${await registry.metrics()}\n`);
  const measured = async (): Promise<{ count: number | undefined; sum: number | undefined }> => {
    const all = await page();
    return { count: all.value(`${NAME}_count`), sum: all.value(`${NAME}_sum`) };
  };
  return { clock, page, measured };
}

function arrives(changed = 1): void {
  sourceSynced.publish({ source: 's', services: 9, changed });
}

function inPlace(parts: Partial<Parameters<typeof proxierSynced.publish>[0]> = {}): void {
  const none = { added: 0, removed: 0, changed: 0, endpointsChanged: 0 };
  const some = { durationMs: 1, services: 9, servicePorts: 9, endpoints: 9 };
  proxierSynced.publish({ ...none, ...some, ...parts });
}

t.test('a change is measured from when it was made until it is in place', async (t) => {
  const { clock, measured, page } = programmingSetup(t);
  kubeTriggered.publish({ times: [T0 - 3000, T0 - 1000] });
  arrives();
  clock.now += 500;
  inPlace();
  t.same(await measured(), { count: 2, sum: 3.5 + 1.5 });
  const all = await page();
  t.equal(all.value(`${NAME}_bucket`, { le: '1' }), 0);
  t.equal(all.value(`${NAME}_bucket`, { le: '2' }), 1);
  t.equal(all.value(`${NAME}_bucket`, { le: '300' }), 2);
  inPlace();
  t.equal((await measured()).count, 2, 'each once');
});

t.test('what comes while another change is put in place waits for its own', async (t) => {
  const { clock, measured } = programmingSetup(t);
  arrives();
  kubeTriggered.publish({ times: [T0] });
  clock.now += 5000;
  inPlace();
  t.equal((await measured()).count, 0);
  arrives();
  clock.now += 1000;
  inPlace();
  t.same(await measured(), { count: 1, sum: 6 });
});

t.test('a change that concerns other nodes is not held against a later one', async (t) => {
  const { clock, measured } = programmingSetup(t);
  kubeTriggered.publish({ times: [T0] });
  clock.now += 60_000;
  kubeTriggered.publish({ times: [clock.now - 250] });
  arrives();
  inPlace();
  t.same(await measured(), { count: 1, sum: 0.25 });
});

t.test('clocks that differ give no negative times', async (t) => {
  const { measured } = programmingSetup(t);
  kubeTriggered.publish({ times: [T0 + 5000] });
  arrives();
  inPlace();
  t.same(await measured(), { count: 1, sum: 0 });
});

t.test('changes by kind, and what is not in place yet', async (t) => {
  const { page } = programmingSetup(t);
  arrives(7);
  const before = await page();
  const prefix = 'kubeproxy_sync_proxy_rules_';
  t.equal(before.value(`${prefix}service_changes_pending`), 7);
  t.equal(before.value(`${prefix}last_queued_timestamp_seconds`), T0 / 1000);
  inPlace({ added: 1, changed: 2, removed: 3, endpointsChanged: 4 });
  inPlace({ endpointsChanged: 1 });
  const after = await page();
  t.equal(after.value(`${prefix}service_changes_pending`), 0);
  t.equal(after.value(`${prefix}service_changes_total`), 6);
  t.equal(after.value(`${prefix}endpoint_changes_total`), 5);
});
