import * as fc from 'fast-check';
import t from 'tap';
import { exposition, label, type Family } from '../../src/observe/exposition.ts';
import {
  SERVICE_PORT_FAMILIES,
  servicePortLabels,
} from '../../src/observe/service-port-metrics.ts';
import {
  newCounters,
  observeConnectSeconds,
  type ServicePortCounters,
} from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { parseMetrics } from '../support/metrics-page.ts';

function servicePort(
  name: string,
  counters: Partial<ServicePortCounters> = {},
  rest: Partial<ServicePortSnapshot> = {},
): ServicePortSnapshot {
  return {
    name,
    protocol: 'TCP',
    listeners: [],
    endpoints: 0,
    counters: { ...newCounters(), ...counters },
    ...rest,
  };
}

function page(...ports: ServicePortSnapshot[]) {
  return parseMetrics([...exposition(SERVICE_PORT_FAMILIES, ports, servicePortLabels)].join(''));
}

t.test('a service port without a port name has an empty label', (t) => {
  const metrics = page(servicePort('ns/svc'));
  t.same(metrics.samples[0]?.labels, {
    namespace: 'ns',
    service: 'svc',
    port: '',
    protocol: 'TCP',
  });
  t.end();
});

t.test('datagrams are counted for UDP only', (t) => {
  const udp = { protocol: 'UDP' } as const;
  const metrics = page(
    servicePort('a/tcp:x'),
    servicePort('a/udp:x', { datagramsIn: 5, datagramsOut: 4, datagramsDropped: 1 }, udp),
  );
  const datagrams = metrics.samples.filter(({ name }) =>
    name.startsWith('kpng_userspace_datagram'),
  );
  t.same(
    datagrams.map(({ labels, value }) => [labels['service'], labels['direction'], value]),
    [
      ['udp', 'in', 5],
      ['udp', 'out', 4],
      ['udp', undefined, 1],
    ],
  );
  t.end();
});

t.test('the histogram is cumulative and ends at its count', (t) => {
  const counters = newCounters();
  for (const seconds of [0.0005, 0.001, 0.02, 0.3, 99]) observeConnectSeconds(counters, seconds);
  const metrics = page(servicePort('a/b:c', counters));
  const buckets = metrics.samples.filter(
    ({ name }) => name === 'kpng_userspace_connect_seconds_bucket',
  );
  t.same(
    buckets.map(({ labels, value }) => [labels['le'], value]),
    [
      ['0.001', 2],
      ['0.0025', 2],
      ['0.005', 2],
      ['0.01', 2],
      ['0.025', 3],
      ['0.05', 3],
      ['0.1', 3],
      ['0.25', 3],
      ['0.5', 4],
      ['1', 4],
      ['2.5', 4],
      ['+Inf', 5],
    ],
  );
  t.equal(metrics.value('kpng_userspace_connect_seconds_count'), 5);
  t.ok(Math.abs((metrics.value('kpng_userspace_connect_seconds_sum') ?? 0) - 99.3215) < 1e-9);
  t.end();
});

t.test('errors, rejections and timeouts appear with their cause', (t) => {
  const metrics = page(
    servicePort('a/b:c', {
      connectErrors: {
        refused: 3,
        timeout: 2,
        unreachable: 0,
        reset: 0,
        loop: 0,
        limit: 0,
        other: 1,
      },
      retries: 4,
      rejectedNoEndpoint: 1,
      rejectedDrained: 8,
      rejectedConnectFailed: 2,
      rejectedLimit: 3,
      rejectedSource: 4,
      rejectedHoldTimeout: 9,
      halfCloseTimeouts: 5,
      idleTimeouts: 6,
      sessionsEvicted: 7,
    }),
  );
  const errors = (cause: string) => metrics.value('kpng_userspace_connect_errors_total', { cause });
  t.same(['refused', 'timeout', 'unreachable', 'other'].map(errors), [3, 2, undefined, 1]);
  const rejected = (reason: string) => metrics.value('kpng_userspace_rejected_total', { reason });
  const reasons = ['no-endpoint', 'connect-failed', 'limit', 'source', 'drained', 'hold-timeout'];
  t.same(reasons.map(rejected), [1, 2, 3, 4, 8, 9]);
  t.equal(metrics.value('kpng_userspace_retries_total'), 4);
  t.equal(metrics.value('kpng_userspace_half_close_timeouts_total'), 5);
  t.equal(metrics.value('kpng_userspace_udp_idle_timeouts_total'), 6);
  t.equal(metrics.value('kpng_userspace_udp_sessions_evicted_total'), 7);
  t.end();
});

t.test('held clients appear once there has been one, and as none then', (t) => {
  const held = (counters: { held: number; heldTotal: number }) => {
    const metrics = page(servicePort('a/b:c', counters));
    return ['kpng_userspace_connections_held', 'kpng_userspace_connections_held_total'].map(
      (name) => metrics.value(name),
    );
  };
  t.same(held({ held: 0, heldTotal: 0 }), [undefined, undefined]);
  t.same(held({ held: 2, heldTotal: 5 }), [2, 5]);
  t.same(held({ held: 0, heldTotal: 5 }), [0, 5]);
  t.end();
});

t.test('listeners by state', (t) => {
  const listen = { address: '127.0.0.1', port: 1, traffic: 'internal' } as const;
  const metrics = page(
    servicePort(
      'a/b:c',
      {},
      {
        listeners: [
          { state: 'listening', listen, boundPort: 1 },
          { state: 'failed', listen, code: 'KPNG_LISTEN_PERMISSION', cause: 'EACCES' },
          { state: 'failed', listen, code: 'KPNG_LISTEN_PERMISSION', cause: 'EACCES' },
        ],
      },
    ),
  );
  t.equal(metrics.value('kpng_userspace_listeners', { state: 'listening' }), 1);
  t.equal(metrics.value('kpng_userspace_listeners', { state: 'failed' }), 2);
  t.end();
});

t.test('no name breaks the page', (t) => {
  const outcome = fc.check(
    fc.property(fc.string({ unit: 'binary' }), fc.string(), (namespace, service) => {
      const odd = `x${namespace.replaceAll('/', '')}/${service.replaceAll(':', '')}"\\\n:p`;
      const [sample] = page(servicePort(odd)).samples;
      const { namespace: read, service: readService, port } = sample?.labels ?? {};
      return `${read}/${readService}:${port}` === odd;
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
  t.notOk(outcome.failed, JSON.stringify(outcome.counterexample));
  t.end();
});

t.test('numbers that are none are spelt as Prometheus wants them', (t) => {
  const family: Family<number> = {
    type: 'gauge',
    help: 'x',
    write: (value, labels, out) => out.sample(labels, value),
  };
  const values = [1.5, 1e21, Number.NaN, Infinity, -Infinity];
  const text = [...exposition({ x: family }, values, () => label('a', 'b'))].join('');
  t.same(
    text.trimEnd().split('\n').slice(2),
    ['1.5', '1e+21', 'NaN', '+Inf', '-Inf'].map((value) => `x{a="b"} ${value}`),
  );
  t.end();
});

t.test('every counter of the data path is on the page', (t) => {
  const page = (counters: ServicePortCounters): string => {
    const port: ServicePortSnapshot = {
      name: 'ns/a:b',
      protocol: 'UDP',
      listeners: [],
      endpoints: 0,
      counters,
    };
    return [...exposition(SERVICE_PORT_FAMILIES, [port], servicePortLabels)].join('');
  };
  const idle = page(newCounters());
  for (const [name, value] of Object.entries(newCounters())) {
    if (typeof value !== 'number') continue;
    t.not(page({ ...newCounters(), [name]: 4711 }), idle, name);
  }
  t.end();
});
