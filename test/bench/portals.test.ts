import { join } from 'node:path';
import t from 'tap';
import { now } from '../../bench/portals/clock.ts';
import { Feed } from '../../bench/portals/feed.ts';
import { Dialogue } from '../../bench/support/dialogue.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { RecordingSink } from '../support/recording-sink.ts';

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
