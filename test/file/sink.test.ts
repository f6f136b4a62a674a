import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import t from 'tap';
import { parse } from 'yaml';
import type { Service } from '../../src/api/generated/localv1/api.ts';
import { startFileSink, stateText } from '../../src/file/sink.ts';
import { sinkFailed, type SinkFailed, sinkRecovered } from '../../src/store/events.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { itemsIn } from '../support/api-rig.ts';
import { emptyCluster, NODES, perform, pod, step } from '../support/cluster.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { loader, problemsOf, stateOf, warningsOf } from '../support/file-rig.ts';
import { listening } from '../support/sockets.ts';
import { holdsAsync } from '../support/property.ts';
import { until } from '../support/until.ts';

/** A sink that writes when the test says so. */
async function setUp(dir: string) {
  const cluster = await emptyCluster();
  const clock = new FakeClock();
  const path = join(dir, 'state.yaml');
  const sink = startFileSink({ store: cluster.store, path, clock, random: () => 0.5 });
  /** The number of services in the file. */
  const size = (): number =>
    existsSync(path) ? stateOf(readFileSync(path, 'utf8')).services.size : -1;
  return { cluster, clock, path, sink, size };
}

t.test('changes are combined: one write a second, with the newest state', async (t) => {
  const { cluster, clock, sink, size, path } = await setUp(t.testdir());
  cluster.service('demo/web');
  t.equal(clock.pending, 0, 'nothing before the state is complete');
  cluster.complete();
  clock.advance(0);
  await until(() => size() === 1);
  for (let i = 0; i < 5; i++) cluster.service(`demo/s${i}`);
  await until(() => clock.pending === 1);
  clock.advance(999);
  t.equal(clock.pending, 1);
  clock.advance(1);
  await until(() => size() === 6);
  await new Promise(setImmediate);
  t.equal(clock.pending, 0, 'nothing has changed');
  cluster.service('demo/last');
  await sink.close();
  t.equal(size(), 7, 'closing writes what is missing');
  await sink.close();
  t.strictSame(readdirSync(join(path, '..')), ['state.yaml'], 'no other file is left');
  t.equal(cluster.store.history.kept, 0);
});

t.test('a write that fails is reported, and retried with the current state', async (t) => {
  const failures: SinkFailed[] = [];
  const recovered: number[] = [];
  listening(t, sinkFailed, (event) => failures.push(event));
  listening(t, sinkRecovered, (event) => recovered.push(event.failures));
  const dir = join(t.testdir(), 'gone');
  const { cluster, clock, size, sink } = await setUp(dir);
  cluster.service('demo/a').complete();
  clock.advance(0);
  await until(() => failures.length === 1);
  t.match(failures, [
    { error: { code: 'KPNG_SINK_FAILED', message: /gone.*ENOENT/ }, retryInMs: 1000 },
  ]);
  mkdirSync(dir);
  cluster.service('demo/b');
  await until(() => clock.pending === 1);
  clock.advance(1000);
  await until(() => recovered.length === 1);
  t.equal(size(), 2);
  cluster.service('demo/c');
  await until(() => clock.pending === 1);
  clock.advance(1000);
  await until(() => size() === 3);
  t.strictSame(recovered, [1]);
  rmSync(dir, { recursive: true });
  cluster.service('demo/d');
  await sink.close();
  t.equal(failures.length, 2, 'the last attempt');
});

/**
 * What Go kpng refuses, or crashes on, of what our schema allows. Found by giving files to its decoder: it refuses the
 * whole file for an unknown key or a value of another kind, and crashes where a map is missing that it needs.
 */
const UNKNOWN = /\.(?:sessionaffinity|conditions\.(?:serving|terminating)|hints\.nodes)$/;
/** A null of these is a crash. */
const NEEDED = /\.(?:service|endpoint|topology)$/;
/** The characters that its YAML reader accepts, and the escapes that it does not. */
const CHARACTERS = /^[\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\u{10000}-\u{10ffff}]*$/u;
const SURROGATES = /\\u[dD][89a-fA-F]/;

/** The paths that Go kpng refuses or crashes on. */
function refused(value: unknown, path: string): string[] {
  if (value === null) return NEEDED.test(path) ? [path] : [];
  if (UNKNOWN.test(path)) return [path];
  if (path.endsWith('.protocol')) return typeof value === 'number' ? [] : [path];
  if (typeof value !== 'object' || /\.(?:labels|annotations)$/.test(path)) return [];
  return Object.entries(value).flatMap(([key, each]: [string, unknown]) =>
    refused(each, Array.isArray(value) ? path : `${path}.${key}`),
  );
}

function written(store: GlobalStore, extended?: boolean): string {
  return [...stateText(store, store.revision, extended)].join('');
}

function refusedIn(text: string): string[] {
  const found = [...problemsOf(text), ...refused(parse(text, { version: '1.1' }), '')];
  return CHARACTERS.test(text) && !SURROGATES.test(text) ? found : [...found, 'a character'];
}

/** How each endpoint begins. */
const OF_WEB = ['  - hash: 1', 'namespace: demo', 'sourcename: web', 'servicename: web'].join(
  '\n    ',
);

const EXTENDED = String.raw`
nodes:
- name: n1
  labels: {a: "true", b/c: ""}
  annotations: {}
  topology: {node: n1, zone: z1}
- name: n2
  labels: {topology.kubernetes.io/zone: z2}
  annotations: {}
  topology: {node: "", zone: z2}
services:
- service:
    namespace: demo
    name: web
    type: LoadBalancer
    labels: {app: web}
    annotations: {note: "two\nlines", odd: "\u0085\ufffe\uffff\ufeff\u2028\u0000${'\ufffd\u{1f600}'}"}
    ips:
      clusterips: {v4: [10.96.0.10], v6: ["fd00::10"]}
      externalips: {v4: [], v6: []}
      loadbalancerips: {v4: [203.0.113.9], v6: []}
      headless: true
    ipfilters: [{targetips: null, sourceranges: [192.0.2.0/24]}]
    mapip: true
    ports:
    - {name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080, targetportname: web}
    externaltraffictolocal: true
    sessionaffinity: {clientip: {timeoutseconds: 600}}
    internaltraffictolocal: false
    healthchecknodeport: 32100
  endpoints:
${OF_WEB}
    endpoint: {hostname: web-0, ips: {v4: [10.1.0.5], v6: []}, local: false, portoverrides: [], scopes: null}
    conditions: {ready: true}
    podname: web-0
    topology: {node: n1, zone: ""}
    hints: {zones: [z1], nodes: [n1]}
${OF_WEB}
    endpoint: {hostname: "", ips: {v4: [10.1.0.6], v6: []}, local: false, portoverrides: [], scopes: null}
    conditions: {ready: false, serving: true, terminating: true}
    podname: web-1
    topology: {node: "", zone: ""}
    hints: null
${OF_WEB}
    endpoint: null
    conditions: {ready: true}
    podname: web-2
    topology: {node: "", zone: ""}
    hints: null
`.slice(1);

/** Without what Go kpng does not know: it refuses the file, or crashes. */
const DEFAULT = EXTENDED.replace('{clientip: {timeoutseconds: 600}}', 'null')
  .replace(', nodes: [n1]', '')
  .replace(', serving: true, terminating: true', '')
  .replace(/ {2}- hash: 1\n.*\n.*\n.*\n {4}endpoint: null\n(?: {4}.*\n)*/, '');

t.test('the default and the extended form, with every field of a service', async (t) => {
  const cluster = (await emptyCluster()).slice('demo/none', 'lost', pod('x', '10.1.0.6'));
  const { store } = cluster;
  await loader(store)(EXTENDED.replace('a: "true", b/c: ""', 'b/c: "", a: "true"'));
  // Its zone is that of its label.
  cluster.node('n2', '', { topology: undefined, labels: { 'topology.kubernetes.io/zone': 'z2' } });
  const [usual, text] = [written(store), written(store, true)];
  const constant = (each: string) => each.replaceAll(/hash: \d+/g, 'hash: 1').split('\n');
  t.strictSame(constant(text), EXTENDED.split('\n'));
  t.strictSame(constant(usual), DEFAULT.split('\n'));
  t.strictSame(refusedIn(usual), []);
  t.strictSame(refusedIn(text).sort(), [
    '.services.endpoints.conditions.serving',
    '.services.endpoints.conditions.terminating',
    '.services.endpoints.endpoint',
    '.services.endpoints.hints.nodes',
    '.services.service.sessionaffinity',
  ]);
  t.strictSame(warningsOf(text), []);
  t.match(store.services.get('demo/web')?.service, {
    healthCheckNodePort: 32_100,
    ports: [{ port: 80, nodePort: 30_080, targetPort: 8080, targetPortName: 'web' }],
  });
});

t.test('an empty state is an empty state file', async (t) => {
  const text = written((await emptyCluster()).complete().store);
  t.equal(text, 'nodes: []\nservices: []\n');
  t.equal(stateOf(text).services.size, 0);
});

/** What a node learns of a store, in full. */
function told(store: GlobalStore, node: string): string[] {
  const changes = new LocalReaders(store).open(() => {}).next(node);
  return itemsIn(changes).map((item) => JSON.stringify(item));
}

/** Words and forms that are not text in one version of YAML or another, and half of a character. */
const odd = fc.constantFrom(
  ...'true,False,on,Off,y,N,,yes,No,null,~,1e3,0x10,010,1:30,.5,-,a: b,10.0.0.1/8,::'.split(','),
  ...'# x,&a,*a,!x,",\',='.split(','),
  String.fromCharCode(0xd800),
);

t.test('any state is read again as it was, and the default form by Go kpng, too', async (t) => {
  const anyText = fc.oneof(odd, fc.string({ unit: 'binary' }), fc.string({ unit: 'grapheme' }));
  const texts = fc.dictionary(anyText, anyText);
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(step, { maxLength: 25 }), texts, async (steps, given) => {
      const cluster = (await emptyCluster()).complete();
      for (const each of steps) perform(cluster, each);
      const { store } = await emptyCluster();
      await loader(store)(written(cluster.store, true));
      for (const node of NODES) assert.deepEqual(told(store, node), told(cluster.store, node));
      const wellFormed = Object.entries(given).map((pair) =>
        pair.map((each) => each.toWellFormed()),
      );
      const annotations = Object.fromEntries(wellFormed) as Record<string, string>;
      cluster.service('ns/text', { annotations: given, type: 'ClusterIP' });
      const text = written(cluster.store);
      assert.deepEqual(refusedIn(text), []);
      for (const version of ['1.1', '1.2'] as const) {
        const { services } = parse(text, { version }) as { services: { service: Service }[] };
        const read = services.find(({ service: { name } }) => name === 'text');
        assert.deepEqual({ ...read?.service.annotations }, annotations, version);
      }
    }),
  );
});
