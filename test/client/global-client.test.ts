import t, { type Test } from 'tap';
import { EndpointInfo, NodeInfo, ServiceInfo } from '../../src/api/generated/globalv1/api.ts';
import type { OpItem } from '../../src/api/generated/localv1/api.ts';
import type { ConnectorOptions } from '../../src/client/connector.ts';
import { globalClient } from '../../src/client/client.ts';
import type { KpngError } from '../../src/errors.ts';
import { GlobalTransaction } from '../../src/store/global-store.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { emptyCluster } from '../support/cluster.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { textsOf } from '../support/api-rig.ts';
import { startKpngServer } from '../support/kpng-server.ts';
import { Mailbox } from '../support/until.ts';
import { deletePath as gone, reset, service, setBytes, sync } from '../support/messages.ts';

const METHOD = '/globalv1.Sets/Watch';

function setService(key: string, type = 'ClusterIP'): OpItem {
  const value = ServiceInfo.encode({ hash: 1n, service: service(key, { type }) }).finish();
  return setBytes(10, `${key.replace('/', '|')}||`, value);
}

/** `inPath`: the service in the path. */
function setEndpoint(key: string, source: string, hash: string, inPath?: string): OpItem {
  const [namespace = '', serviceName = ''] = key.split('/');
  const info = EndpointInfo.fromPartial({
    hash: 1n,
    namespace,
    serviceName,
    sourceName: source,
    podName: hash,
    endpoint: { ips: { v4: ['10.0.0.1'] } },
  });
  const path = `${namespace}|${inPath ?? serviceName}|${source}|${hash}`;
  return setBytes(11, path, EndpointInfo.encode(info).finish());
}

function setNode(name: string): OpItem {
  const info = NodeInfo.fromPartial({ node: { name } });
  return setBytes(12, `|${name}||`, NodeInfo.encode(info).finish());
}

interface Options extends Partial<ConnectorOptions> {
  /** What the server serves. */
  readonly method?: string;
}

/** A scripted server and a client that writes what it says to a store. */
async function setUp(t: Test, { method = METHOD, ...options }: Options = {}) {
  const server = await startKpngServer({ method });
  const { store } = await emptyCluster();
  const clock = new FakeClock();
  const errors = new Mailbox<KpngError>('an error');
  const client = globalClient({
    target: server.target,
    clock,
    random: () => 0.5,
    onError: (error) => errors.put(error),
    ...options,
  });
  const stop = new AbortController();
  const done = client.feed(store, stop.signal);
  t.teardown(async () => {
    stop.abort();
    await done;
    server.stop();
  });
  return { server, store, clock, errors };
}

type Store = Awaited<ReturnType<typeof setUp>>['store'];

/** What a node learns of the store. */
function view(store: Store): string[] | undefined {
  return textsOf(new LocalReaders(store).open(() => {}).next('n1'));
}

t.test('after a reconnect only differences count; missing entries go at the Sync', async (t) => {
  const { server, store, clock, errors } = await setUp(t);
  const first = await server.answer(
    reset,
    setNode('n1'),
    setNode('n2'),
    setService('demo/a'),
    setService('demo/b'),
  );
  first.send(setEndpoint('demo/a', 's', 'x'), setEndpoint('demo/b', 's', 'y'), sync);
  await first.request();
  const { revision } = store;
  first.send(setService('demo/c'), gone(10, 'demo|a||'));
  first.end();
  t.equal((await errors.take()).code, 'KPNG_SOURCE_LOST');
  t.equal(store.revision, revision, 'a change set that breaks off leaves no trace');
  clock.advance(1000);
  const second = await server.answer(
    reset,
    setNode('n1'),
    setService('demo/a'),
    setEndpoint('demo/a', 's', 'x'),
  );
  t.equal(store.revision, revision, 'nothing happens before the Sync');
  second.send(sync);
  await second.request();
  t.equal(store.revision, revision + 1);
  t.strictSame(view(store), ['S1 demo/a', 'S2 demo/a/x']);
  t.equal(store.nodes.get('n2'), undefined);
  const written = t.capture(GlobalTransaction.prototype, 'setSource');
  second.send(reset, setNode('n1'), setService('demo/a'), setEndpoint('demo/a', 's', 'x'), sync);
  await second.request();
  t.equal(store.revision, revision + 1, 'the same once more');
  t.same(written(), [], 'endpoints that are the same are not written again');
});

t.test('an unusable entry is reported, and its previous value stays', async (t) => {
  const { server, store, errors } = await setUp(t);
  const bad = Buffer.from('ffff', 'hex');
  const stream = await server.stream();
  await stream.request();
  const all = [setNode('n1'), setService('demo/a'), setEndpoint('demo/a', 's', 'x')];
  stream.send(reset, ...all, sync);
  await stream.answer(reset, setBytes(12, '|n1||', bad), setBytes(10, 'demo|a||', bad));
  stream.send(setBytes(11, 'demo|a|s|x', bad), setBytes(11, 'demo|a|s|z', bad), sync);
  await stream.request();
  t.strictSame(view(store), ['S1 demo/a', 'S2 demo/a/x']);
  t.ok(store.nodes.get('n1'));
  for (let i = 0; i < 4; i++) t.equal((await errors.take()).code, 'KPNG_OP_INVALID');
  t.equal(errors.size, 0);
});

t.test('V5 (kept): the second entry of an endpoint adds nothing', async (t) => {
  const { server, store } = await setUp(t);
  const entries = [undefined, ''].map((inPath) => setEndpoint('demo/web', 's', 'x', inPath));
  const stream = await server.answer(reset, setService('demo/web'), ...entries, sync);
  await stream.request();
  t.strictSame(view(store), ['S1 demo/web', 'S2 demo/web/x']);
  t.strictSame(store.services.keys(), ['demo/web']);
});

t.test('a server without the global API is reported as one', async (t) => {
  const { errors } = await setUp(t, { method: '/localv1.Sets/Watch' });
  t.match((await errors.take()).message, /UNIMPLEMENTED.*the global API.*--globalv1-api/);
});

t.test('the state of a whole cluster is limited, Resets or not', async (t) => {
  const stateLimits = { maxEntries: 20, maxBytes: 20_000 };
  const { server, store, errors } = await setUp(t, { stateLimits });
  const stream = await server.answer(reset, sync);
  const deletes = [...Array(21).keys()].map((n) => gone(10, `d|${n}||`));
  await stream.answer(...deletes.slice(1), reset, ...deletes.slice(1), sync);
  t.match((await errors.take()).message, /discarded the 20 operations/);
  await stream.answer(...deletes);
  t.equal((await errors.take()).code, 'KPNG_STATE_TOO_LARGE');
  await stream.closed;
  t.ok(store.synced);
});
