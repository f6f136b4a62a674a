import t from 'tap';
import { hostname } from 'node:os';
import { sourceConnected, sourceDisconnected, sourceSynced } from '../../src/store/events.ts';
import { startClientRig } from '../support/kpng-server.ts';
import {
  deleteEndpoint,
  endpoint,
  reset,
  service,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';
import { RecordingSink } from '../support/recording-sink.ts';
import { collect } from '../support/sockets.ts';

const web = service('demo/web');
const web0 = endpoint('10.1.0.5');

t.test('V11 (kept): the first diff', async (t) => {
  const { server, sink } = await startClientRig(t);
  const stream = await server.stream();
  t.match(await stream.request(), { nodeName: 'node-a', clusterScope: undefined });
  stream.send(
    reset,
    setService(service('demo/api')),
    setService(web),
    setEndpoint('demo/web/web-0', web0),
    setEndpoint('demo/api/1f', web0),
    sync,
  );
  const { changed, shape, view } = await sink.next();
  t.strictSame(changed, ['demo/api', 'demo/web']);
  t.strictSame(shape, ['demo/api(1f)', 'demo/web(web-0)']);
  t.strictSame(view.get('demo/web')?.endpoints.get('web-0'), web0);
});

t.test('a node name is sent unchanged; without one, that of the host', async (t) => {
  for (const nodeName of [undefined, '']) {
    const { server } = await startClientRig(t, { nodeName });
    t.equal((await (await server.stream()).request()).nodeName, nodeName ?? hostname());
  }
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
  const { server, sink, clock, errors } = await startClientRig(t);
  const source = `local API at ${server.target.text}`;
  const stream = await server.answer(reset, setService(web), setEndpoint('demo/web/x', web0), sync);
  await sink.next();
  await stream.answer(deleteEndpoint('demo/web/x'), sync);
  await sink.next();
  stream.end();
  t.match((await errors.take()).message, /ended the stream/);
  clock.advance(1000);
  await (await server.stream()).request();
  t.strictSame(syncs, [
    { source, services: 1, changed: 1, operations: 3 },
    { source, services: 1, changed: 1, operations: 2 },
  ]);
  t.match(lost, [{ source, retryInMs: 1000, error: { code: 'KPNG_SOURCE_LOST' } }]);
  t.strictSame(connected, [{ source }, { source }]);
});
