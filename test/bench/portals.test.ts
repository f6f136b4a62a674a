import { join } from 'node:path';
import t from 'tap';
import { now } from '../../bench/portals/clock.ts';
import { readPortalArgs } from '../../bench/portals/command.ts';
import { portalResults } from '../../bench/portals/docs.ts';
import { Feed } from '../../bench/portals/feed.ts';
import { times, type PortalReport, type PortalResult } from '../../bench/portals/result.ts';
import { serviceAddress } from '../../bench/portals/services.ts';
import { changeRows, coldRows } from '../../bench/portals/table.ts';
import { Dialogue } from '../../bench/support/dialogue.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { RecordingSink } from '../support/recording-sink.ts';

const one = (median: number) => ({ median, p95: 2 * median, samples: 3 });

function result(subject: string, servicePorts: number, ms: number): PortalResult {
  const change = { done: one(ms), seen: one(2 * ms), seenInRow: one(3 * ms), processes: 1 };
  return {
    subject,
    servicePorts,
    served: Math.min(servicePorts, 1500),
    cold: { median: 1000 * ms, min: 500 * ms, max: 2000 * ms, samples: 3 },
    coldCpu: 0.5,
    coldProcesses: 1,
    changes: { added: change, endpoint: { ...change, processes: 0 }, removed: change },
    changeCpu: 1,
    idleCpu: 0.1,
    resident: 80e6,
    anonymous: 30e6,
  };
}

const report: PortalReport = {
  date: '2026-01-02',
  machine: { cpu: 'Some CPU', cores: 2, memoryGiB: 4, system: 'Linux 6', node: 'v26.0.0' },
  descriptors: 2048,
  results: [
    result('nftables', 1000, 5),
    result('kube-proxy userspace', 1000, 5000),
    result('nftables', 30_000, 6),
  ],
};

t.test('the slowest of few counts as their 95th percentile', (t) => {
  t.same(times([3, 1, 2]), { median: 2, p95: 3, samples: 3 });
  const hundred = Array.from({ length: 100 }, (_, index) => index + 1);
  t.same(times(hundred), { median: 50, p95: 95, samples: 100 });
  t.equal(times([]), undefined);
  t.end();
});

t.test('each start and each change has a row of its own', (t) => {
  t.same(coldRows(report)[1], [
    '1,000',
    'nftables',
    '1,000',
    '5.00 (2.50-10.0)',
    '0.500',
    '1',
    '0.100',
    '80',
    '30',
  ]);
  t.same(
    changeRows(report).slice(1, 3),
    [
      ['1,000', 'nftables', 'service added', '10.0 / 20.0', '15.0 / 30.0', '5.00 / 10.0', '1'],
      ['', '', 'endpoint added', '10.0 / 20.0', '15.0 / 30.0', '5.00 / 10.0', '0'],
    ],
    'what belongs together is named once',
  );
  t.end();
});

t.test('the data file has the machine, its limit and both tables', (t) => {
  const { machine, about, tables } = portalResults(report);
  t.equal(machine, 'Some CPU, 2 cores, 4 GiB, Linux 6, Node v26.0.0');
  t.same(about, { descriptors: 2048 });
  t.same(Object.values(tables), [coldRows(report), changeRows(report)]);
  t.end();
});

t.test('contradictory flags are reported', (t) => {
  t.same(readPortalArgs(['--sizes', '5,50']).sizes, [5, 50]);
  t.match(readPortalArgs([]).portals, ['nftables']);
  for (const args of [
    ['--sizes', '0'],
    ['--sizes', '10,x'],
    ['--portal', 'carrier-pigeon'],
    ['--peer', '/nowhere'],
    ['--peer', 'kube-proxy=/nowhere/at/all'],
    ['--no-such-flag'],
  ]) {
    t.throws(() => readPortalArgs(args), TypeError, args.join(' '));
  }
  t.end();
});

t.test('every service has an address of its own', async (t) => {
  const addresses = new Set(Array.from({ length: 100_100 }, (_, n) => serviceAddress(n)));
  t.equal(addresses.size, 100_100);
  t.equal(serviceAddress(65_536), '10.97.0.0');
});

t.test('services and their changes reach the sink', async (t) => {
  const sink = new RecordingSink();
  const feed = new Feed(sink, await loadHasher());
  t.teardown(() => feed.close());
  const { at, doneAt } = await feed.start(2);
  t.ok(doneAt >= at);
  const endpoints = 'pod-10.1.0.10 pod-10.1.0.11';
  t.strictSame((await sink.next()).shape, [
    `bench/s000000(${endpoints})`,
    `bench/s000001(${endpoints})`,
  ]);
  for (const [kind, shape] of [
    ['added', 'bench/s000002(pod-10.1.0.10)'],
    ['endpoint', `bench/s000002(${endpoints})`],
    ['removed', undefined],
  ] as const) {
    await feed.change(kind, 2);
    const next = await sink.next();
    t.strictSame(next.changed, ['bench/s000002']);
    t.equal(next.shape[2], shape);
  }
});

t.test('the API server of the peer has the services, and changes them', async (t) => {
  const script = join(import.meta.dirname, '../../bench/portals/api.ts');
  const api = new Dialogue([process.execPath, script]);
  t.teardown(() => api.kill());
  const url = await api.ask<string>({ do: 'open', services: 3 });
  const json = async (path: string): Promise<Record<string, unknown>> =>
    (await fetch(`${url}${path}`)).json() as Promise<Record<string, unknown>>;
  const addresses = async () =>
    (await json('/api/v1/namespaces/bench/endpoints/s000003'))['subsets'];

  t.match(await json('/api/v1/nodes/bench-node'), { kind: 'Node' });
  const services = await json('/api/v1/services?limit=500&resourceVersion=0');
  t.match(services, { kind: 'ServiceList', items: [{ spec: { clusterIP: '10.96.0.0' } }] });
  t.equal((services['items'] as unknown[]).length, 3);
  t.match(await json('/api/v1/endpoints'), { items: [{ subsets: [{ ports: [{ port: 8080 }] }] }] });
  const asked = await api.ask<number>({ do: 'askedAt' });
  t.ok(asked > now() - 60_000 && asked < now());

  await api.ask({ do: 'change', kind: 'added', n: 3 });
  t.match(await addresses(), [{ addresses: [{ ip: '10.1.0.10' }] }]);
  await api.ask({ do: 'change', kind: 'endpoint', n: 3 });
  t.match(await addresses(), [{ addresses: [{ ip: '10.1.0.10' }, { ip: '10.1.0.11' }] }]);
  await api.ask({ do: 'change', kind: 'removed', n: 3 });
  t.equal(await addresses(), undefined);
  t.match(await json('/api/v1/namespaces/bench/services/s000003'), { code: 404 });
});

t.test('a program that ends during a request is reported', async (t) => {
  const gone = new Dialogue([process.execPath, '-e', '']);
  await t.rejects(gone.ask({}), /has ended/);
  await t.rejects(gone.ask({}), /has ended/);
  await gone.kill();
});
