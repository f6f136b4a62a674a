import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import * as fc from 'fast-check';
import t from 'tap';
import { writeChanges } from '../../src/file/changes.ts';
import { StateParser } from '../../src/file/parse.ts';
import { FileSink } from '../../src/file/sink.ts';
import { stateText } from '../../src/file/write.ts';
import { sinkFailed, sinkRecovered, type SinkFailed } from '../../src/store/events.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { draining, emptyCluster, pod, NODES, perform, step } from '../support/cluster.ts';
import { listening, Mailbox } from '../support/mailbox.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { itemsOf } from '../support/api-rig.ts';
import { holdsAsync } from '../support/property.ts';
import { stateOf, warningsOf } from '../support/file-rig.ts';
import { until } from '../support/until.ts';

/** What a node learns of a store, in full. */
function told(store: GlobalStore, node: string): string[] {
  const changes = new LocalReaders(store).open(() => {}).next(node);
  return [...(changes ?? [])].flatMap(itemsOf).map((item) => JSON.stringify(item));
}

async function storeOf(text: string): Promise<GlobalStore> {
  const { store } = await emptyCluster();
  const changed = new Set<string>();
  const result = new StateParser().parse(text, changed);
  if (!result.ok) throw new Error(JSON.stringify(result.errors));
  const { nodes } = result;
  const nodesText = JSON.stringify(nodes);
  const outcome = Promise.resolve({ ...result, nodes: nodes.length, nodesText, reset: true });
  const parsing = { parts: Readable.from([[...changed]]), outcome };
  await store.updateInParts((transaction) => writeChanges(store, transaction, parsing));
  return store;
}

t.test('what is written is read again as the same state', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
      const cluster = (await emptyCluster()).complete();
      for (const each of steps) perform(cluster, each);
      const { store } = cluster;
      const again = await storeOf([...stateText(store, store.revision, true)].join(''));
      for (const node of NODES) assert.deepEqual(told(again, node), told(store, node));
    }),
  );
});

t.test('the extended form, with every field of a service', async (t) => {
  const cluster = await emptyCluster();
  cluster
    .node('n1', 'z1', { labels: { a: 'true', 'b/c': '' } })
    .service('demo/web', {
      type: 'LoadBalancer',
      labels: { app: 'web' },
      annotations: { note: 'two\nlines' },
      ips: {
        clusterIPs: { v4: ['10.96.0.10'], v6: ['fd00::10'] },
        externalIPs: {},
        loadBalancerIPs: { v4: ['203.0.113.9'] },
        headless: true,
      },
      ports: [
        {
          name: 'http',
          protocol: 1,
          port: 80,
          nodePort: 30080,
          targetPort: 8080,
          targetPortName: 'web',
        },
      ],
      ipFilters: [{ sourceRanges: ['192.0.2.0/24'] }],
      externalTrafficToLocal: true,
      sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds: 600 } },
      healthCheckNodePort: 32100,
      mapIP: true,
    })
    .slice(
      'demo/web',
      'web-1',
      pod('web-0', '', 'n1', {
        endpoint: { hostname: 'web-0', ips: { v4: ['10.1.0.5'] } },
        hints: { zones: ['z1'], nodes: ['n1'] },
      }),
    )
    .slice('demo/web', 'web-2', draining({ podName: 'web-1' }))
    .slice('demo/none', 'lost', pod('x', '10.1.0.6'))
    .complete();
  const { store } = cluster;
  const text = [...stateText(store, store.revision, true)].join('');
  t.matchOnly(text.split('\n'), [
    'nodes:',
    '- name: n1',
    '  labels: {a: "true", b/c: ""}',
    '  annotations: {}',
    '  topology: {node: n1, zone: z1}',
    'services:',
    '- service:',
    '    namespace: demo',
    '    name: web',
    '    type: LoadBalancer',
    '    labels: {app: web}',
    '    annotations: {note: "two\\nlines"}',
    '    ips:',
    '      clusterips: {v4: [10.96.0.10], v6: ["fd00::10"]}',
    '      externalips: {v4: [], v6: []}',
    '      loadbalancerips: {v4: [203.0.113.9], v6: []}',
    '      headless: true',
    '    ipfilters: [{targetips: null, sourceranges: [192.0.2.0/24]}]',
    '    mapip: true',
    '    ports:',
    '    - {name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080, targetportname: web}',
    '    externaltraffictolocal: true',
    '    sessionaffinity: {clientip: {timeoutseconds: 600}}',
    '    internaltraffictolocal: false',
    '    healthchecknodeport: 32100',
    '  endpoints:',
    /^ {2}- hash: \d+$/,
    '    namespace: demo',
    '    sourcename: web-1',
    '    servicename: web',
    '    endpoint: {hostname: web-0, ips: {v4: [10.1.0.5], v6: []}, local: false, portoverrides: [], scopes: null}',
    '    conditions: {ready: true}',
    '    podname: web-0',
    '    topology: {node: n1, zone: ""}',
    '    hints: {zones: [z1], nodes: [n1]}',
    /^ {2}- hash: \d+$/,
    '    namespace: demo',
    '    sourcename: web-2',
    '    servicename: web',
    '    endpoint: null',
    '    conditions: {ready: false, serving: true, terminating: true}',
    '    podname: web-1',
    '    topology: {node: "", zone: ""}',
    '    hints: null',
    '',
  ]);
  t.strictSame(warningsOf(text), []);
  const { services, nodes } = stateOf(text);
  t.strictSame(nodes.get('n1'), store.nodes.get('n1'));
  const web = services.get('demo/web');
  const record = store.services.get('demo/web');
  t.strictSame(web?.service, record?.service);
  t.match(
    web?.endpoints,
    record?.endpoints.map(({ endpoint, conditions, podName, hints }) => {
      return { sourceName: 'web', endpoint, conditions, podName, hints };
    }),
  );
});

t.test('an empty state is an empty state file', async (t) => {
  const { store } = (await emptyCluster()).complete();
  const text = [...stateText(store, store.revision)].join('');
  t.equal(text, 'nodes: []\nservices: []\n');
  t.equal(stateOf(text).services.size, 0);
});

/** A sink that writes when the test says so. */
async function setUp(dir: string) {
  const cluster = await emptyCluster();
  const clock = new FakeClock();
  const written = new Mailbox<number>('a write');
  const path = join(dir, 'state.yaml');
  const sink = new FileSink({
    store: cluster.store,
    path,
    clock,
    random: () => 0.5,
    onWritten: (revision) => written.put(revision),
  });
  return { cluster, clock, written, path, sink, text: () => readFileSync(path, 'utf8') };
}

t.test('changes are combined: one write a second, with the newest state', async (t) => {
  const { cluster, clock, written, sink, text, path } = await setUp(t.testdir());
  cluster.service('demo/web');
  clock.advance(5000);
  t.notOk(existsSync(path), 'nothing before the state is complete');
  cluster.complete();
  clock.advance(0);
  t.equal(await written.take(), 2);
  for (let i = 0; i < 5; i++) cluster.service(`demo/s${i}`);
  await until(() => clock.pending === 1);
  clock.advance(999);
  t.equal(written.size, 0);
  clock.advance(1);
  await written.take();
  t.equal(stateOf(text()).services.size, 6);
  clock.advance(10_000);
  t.equal(written.size, 0, 'nothing has changed');
  cluster.service('demo/last');
  await sink.close();
  t.equal(stateOf(text()).services.size, 7, 'closing writes what is missing');
  await sink.close();
  t.strictSame(readdirSync(join(path, '..')), ['state.yaml'], 'no other file is left');
  t.equal(cluster.store.history, 0);
});

t.test('a write that fails is reported, and retried with the current state', async (t) => {
  const failures: SinkFailed[] = [];
  const recovered: number[] = [];
  listening(t, sinkFailed, (event) => failures.push(event));
  listening(t, sinkRecovered, (event) => recovered.push(event.failures));
  const dir = join(t.testdir(), 'gone');
  const { cluster, clock, written, text, sink } = await setUp(dir);
  cluster.service('demo/a').complete();
  clock.advance(0);
  const told = new Mailbox<SinkFailed>('a failure');
  listening(t, sinkFailed, (event) => told.put(event));
  if (failures.length === 0) await told.take();
  t.match(failures, [
    { error: { code: 'KPNG_SINK_FAILED', message: /gone.*ENOENT/ }, retryInMs: 1000 },
  ]);
  mkdirSync(dir);
  cluster.service('demo/b');
  await until(() => clock.pending === 1);
  clock.advance(1000);
  await written.take();
  t.equal(stateOf(text()).services.size, 2);
  t.strictSame(recovered, [1]);
  rmSync(dir, { recursive: true });
  cluster.service('demo/c');
  await sink.close();
  t.equal(failures.length, 2, 'the last attempt');
});
