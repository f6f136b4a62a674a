import { hostname } from 'node:os';
import { getChannelzHandlers } from '@grpc/grpc-js';
import t from 'tap';
import { sourceConnected, sourceDisconnected, sourceSynced } from '../../src/store/events.ts';
import {
  startClientRig,
  type ClientRig,
  startKpngServer,
  type ServerStream,
} from '../support/kpng-server.ts';
import {
  deleteEndpoint,
  endpoint,
  reset,
  service,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';
import { RecordingSink, shapeOf } from '../support/recording-sink.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

const web = service('demo/web');
const web0 = endpoint('10.1.0.5');

t.test('without a node name, that of the host is sent', async (t) => {
  const { server } = await startClientRig(t, { nodeName: undefined });
  t.equal((await (await server.stream()).request()).nodeName, hostname());
});

t.test('one request per change set, the next only once the sink has applied it', async (t) => {
  const { server, sink, stop, done } = await startClientRig(t, {
    sink: new RecordingSink({ automatic: false }),
  });
  const stream = await server.answer(reset, setService(web), sync);
  const first = await sink.next();
  // The server keeps talking although no one asked; it has to wait too.
  stream.send(setEndpoint('demo/web/web-0', web0), sync);
  for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
  t.equal(stream.unread, 0, 'no request while the sink works');
  t.equal(sink.unread, 0);
  t.strictSame(first.view.get('demo/web')?.endpoints.size, 0, 'its view stands still');
  first.settle();
  await stream.request();
  const second = await sink.next();
  t.strictSame(second.shape, ['demo/web(web-0)']);
  t.equal(stream.unread, 0);
  stop.abort();
  let ended = false;
  const watching = done.then(() => (ended = true));
  await stream.closed;
  t.notOk(ended, 'the sink may finish');
  second.settle();
  await watching;
});

t.test('V13 (kept): a Reset and then silence: nothing is delivered or requested', async (t) => {
  const { server, sink, errors } = await startClientRig(t);
  const stream = await server.answer(reset);
  for (let turn = 0; turn < 100; turn++) await new Promise(setImmediate);
  t.equal(sink.unread, 0);
  t.equal(stream.unread, 0);
  t.equal(errors.size, 0);
  stream.send(setService(web), sync);
  t.strictSame((await sink.next()).changed, ['demo/web'], 'until the first service appears');
  await stream.request();
});

t.test('a client may run again, and knows what it had', async (t) => {
  const { server, sink, stop, done, client } = await startClientRig(t);
  await server.answer(reset, setService(web), setService(service('demo/api')), sync);
  await sink.next();
  t.rejects(client.run(sink), /running/);
  stop.abort();
  await done;

  const again = new AbortController();
  const running = client.run(sink, again.signal);
  await server.answer(reset, setService(web), sync);
  t.strictSame((await sink.next()).changed, ['demo/api']);
  again.abort();
  await running;
  await client.run(sink, AbortSignal.abort());
  t.equal(server.unread, 0, 'a run that is over before it begins does not connect');
});

t.test('events show what happens', async (t) => {
  const connected = collect(t, sourceConnected);
  const syncs = collect(t, sourceSynced);
  const lost = collect(t, sourceDisconnected);
  const { server, sink, errors, retryAfter } = await startClientRig(t);
  const source = `local API at ${server.target.text}`;
  const stream = await server.answer(reset, setService(web), setEndpoint('demo/web/x', web0), sync);
  await sink.next();
  await stream.answer(deleteEndpoint('demo/web/x'), sync);
  await sink.next();
  stream.end();
  t.match((await errors.take()).message, /ended the stream/);
  await retryAfter(1000);
  await (await server.stream()).request();
  t.strictSame(syncs, [
    { source, services: 1, changed: 1, operations: 3 },
    { source, services: 1, changed: 1, operations: 2 },
  ]);
  t.match(lost, [{ source, retryInMs: 1000, error: { code: 'KPNG_SOURCE_LOST' } }]);
  t.strictSame(connected, [{ source }, { source }]);
});

const a = setService(service('d/a'));
const b = setService(service('d/b'));
const x1 = setEndpoint('d/a/x', endpoint('10.0.0.1'));
const x2 = setEndpoint('d/a/x', endpoint('10.0.0.2'));

/** Lets the client connect again, and takes its first request. */
async function reconnected({ server, errors, retryAfter }: ClientRig): Promise<ServerStream> {
  await errors.take();
  await retryAfter(1000);
  const stream = await server.stream();
  await stream.request();
  return stream;
}

t.test('V15 (kept): after a reconnect only the difference is a change', async (t) => {
  const rig = await startClientRig(t);
  const { server, sink } = rig;
  const first = await server.answer(reset, a, b, x1, sync);
  t.strictSame((await sink.next()).shape, ['d/a(x)', 'd/b()']);
  await first.request();
  first.fail({ code: 10, details: 'recv error' });

  const second = await reconnected(rig);
  // A server need not send Reset.
  second.send(a, x2, sync);
  const call = await sink.next();
  t.strictSame(call.changed, ['d/a', 'd/b'], 'none in between, and nothing that is the same');
  t.strictSame(call.shape, ['d/a(x)']);
  t.equal(call.view.get('d/a')?.endpoints.get('x')?.ips?.v4[0], '10.0.0.2');
  t.equal(sink.unread, 0);
});

t.test('V15 (kept, different): a stream that breaks before its Sync leaves no trace', async (t) => {
  const rig = await startClientRig(t);
  const { server, sink } = rig;
  const first = await server.answer(reset, a, b, x1, sync);
  const { view } = await sink.next();
  await first.request();
  first.end();

  const second = await reconnected(rig);
  second.send(reset, x2);
  second.end();

  await rig.errors.take();
  // A connection without a Sync does not shorten the waits.
  await rig.retryAfter(1600);
  const third = await server.answer();
  t.equal(sink.unread, 0);
  t.equal(view.size, 2);
  third.send(reset, a, b, x1, sync);
  t.strictSame((await sink.next()).changed, [], 'what had come half is not part of anything');
});

t.test('while the server is unreachable the state stays and delays grow', async (t) => {
  const rig = await startClientRig(t);
  const { sink, clock, errors } = rig;
  const stream = await rig.server.answer(reset, a, b, sync);
  const { view } = await sink.next();
  await stream.request();
  rig.server.stop();

  await errors.take();
  for (const wait of [1000, 1600, 2560, 4096]) {
    await rig.retryAfter(wait);
    const error = await errors.take();
    const { text } = rig.server.target;
    const cause = `no connection established: connect ECONNREFUSED ${text}`;
    t.equal(error.message, `local API at ${text}: UNAVAILABLE: ${cause}`);
    t.equal(error.code, 'KPNG_SOURCE_LOST');
  }
  t.equal(sink.unread, 0);
  t.equal(view.size, 2);

  const back = await startKpngServer({ address: `127.0.0.1:${rig.server.port}` });
  t.teardown(() => back.stop());
  await until(() => clock.pending === 1);
  clock.advance(10_000);
  const again = await back.answer(reset, a, b, sync);
  t.strictSame((await sink.next()).changed, []);
  await again.request();
  // All is well since the Sync: the next wait is the first again.
  again.end();
  await errors.take();
  await rig.retryAfter(1000);
  await (await back.stream()).request();
});

t.test('the loss of a stream is noticed once the sink is done', async (t) => {
  const rig = await startClientRig(t, { sink: new RecordingSink({ automatic: false }) });
  const first = await rig.server.answer(reset, a, b, sync);
  const call = await rig.sink.next();
  // What had come of the next diff dies with the stream.
  first.send(x1);
  first.fail({ code: 14, details: 'gone meanwhile' });
  await first.closed;
  for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
  t.equal(rig.errors.size, 0);
  t.strictSame(shapeOf(call.view), ['d/a()', 'd/b()']);
  call.settle();
  const second = await reconnected(rig);
  second.send(reset, a, sync);
  const next = await rig.sink.next();
  t.strictSame([next.changed, next.shape], [['d/b'], ['d/a()']]);
  next.settle();
});

t.test('abort ends a wait at once, without the error of the last change set', async (t) => {
  const sink = new RecordingSink({ automatic: false });
  const { server, clock, stop, done, errors } = await startClientRig(t, { sink });
  const stream = await server.answer(reset, a, sync);
  (await sink.next()).settle(new Error('no'));
  stream.end();
  t.match([await errors.take(), await errors.take()], [{ code: 'KPNG_SINK_FAILED' }, {}]);
  await until(() => clock.pending === 2);
  stop.abort();
  await done;
  t.equal(clock.pending, 0);
  const found = Promise.withResolvers<unknown>();
  const call = { request: { start_channel_id: 0, max_results: 0 } } as never;
  getChannelzHandlers().GetTopChannels?.(call, (_, top) => found.resolve(top?.channel?.length));
  t.equal(await found.promise, 0, 'gRPC has forgotten every channel');
});

t.test('statuses are reported by name, and with what to do where that is known', async (t) => {
  const rig = await startClientRig(t);
  for (const [code, message, wait] of [
    [16, /UNAUTHENTICATED: because/, 1000],
    [12, /UNIMPLEMENTED: because \(.*local API.*2022-10-31/, 1600],
    [99, /because/, 2560],
  ] as const) {
    (await rig.server.stream()).fail({ code, details: 'because' });
    t.match((await rig.errors.take()).message, message);
    await rig.retryAfter(wait);
  }
});
