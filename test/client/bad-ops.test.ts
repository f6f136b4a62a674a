import t from 'tap';
import { opInvalid } from '../../src/store/events.ts';
import { startClientRig } from '../support/kpng-server.ts';
import {
  deleteEndpoint,
  endpoint,
  reset,
  service,
  setBytes,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';
import { collect } from '../support/sockets.ts';

const web = setService(service('demo/web'));
const api = setService(service('demo/api'));
const web0 = setEndpoint('demo/web/web-0', endpoint('10.1.0.5'));
const BAD = Buffer.from('ffff', 'hex');

t.test('bad operations are named and counted, the good ones around them count', async (t) => {
  const events = collect(t, opInvalid);
  const { server, sink, errors } = await startClientRig(t);
  const stream = await server.answer(
    reset,
    setBytes(1, 'demo/api', BAD),
    web,
    setBytes(1, 'lonely', BAD),
    setBytes(7, 'demo/x', BAD),
    BAD,
    Buffer.alloc(0),
    setBytes(2, 'demo/web', BAD),
    web0,
    setBytes(2, 'demo/web/web-1', BAD),
    sync,
  );
  t.strictSame((await sink.next()).shape, ['demo/web(web-0)']);
  for (const message of [
    /service "demo\/api"/,
    /path "lonely"/,
    /set 7/,
    /cannot be decoded/,
    /Unknown kind/,
    /path "demo\/web" /,
    /endpoint "demo\/web\/web-1"/,
  ]) {
    const error = await errors.take();
    t.equal(error.code, 'KPNG_OP_INVALID');
    t.match(error.message, message);
  }
  t.equal(events.length, 7);
  t.equal(events[0]?.source, `local API at ${server.target.text}`);

  await stream.request(); // The stream lives on.
  stream.send(api, sync);
  t.strictSame((await sink.next()).shape, ['demo/api()', 'demo/web(web-0)']);
});

t.test('a Reset within a change set is reported, and what follows it applies', async (t) => {
  const { server, sink, errors } = await startClientRig(t);
  const stream = await server.answer(reset, reset, web, web0, reset, api, web, sync);
  const { shape } = await sink.next();
  t.strictSame(shape, ['demo/api()', 'demo/web()']);
  const error = await errors.take();
  t.equal(error.code, 'KPNG_OP_INVALID');
  t.match(error.message, /Reset within a change set: discarded the 2 operations before it/);
  t.equal(errors.size, 0, 'a Reset at the start is none, however often');
  await stream.answer(web0, reset, web, web0, api, sync);
  t.strictSame((await sink.next()).shape, ['demo/api()', 'demo/web(web-0)']);
  t.match((await errors.take()).message, /the operation before it/);
});

t.test('endpoints without their service are reported once, and used when it comes', async (t) => {
  const { server, sink, errors } = await startClientRig(t);
  const stream = await server.stream();
  await stream.request();
  const lost = ['a', 'b'].map((key) => setEndpoint(`demo/lost/${key}`, endpoint('10.1.0.6')));
  stream.send(reset, web0, ...lost, setBytes(1, 'demo/api', BAD));
  stream.send(setEndpoint('demo/api/api-0', endpoint('10.1.0.7')), web, sync);
  t.strictSame((await sink.next()).shape, ['demo/web(web-0)']);
  t.match((await errors.take()).message, /service "demo\/api"/);
  const error = await errors.take();
  t.equal(error.code, 'KPNG_OP_INVALID');
  t.match(error.message, /endpoint "demo\/lost\/a" and of 1 more: there is no such service/);
  t.equal(errors.size, 0, 'a damaged service is reported once');

  await stream.answer(api, deleteEndpoint('demo/gone/x'), sync);
  t.strictSame((await sink.next()).shape, ['demo/api(api-0)', 'demo/web(web-0)']);
  await stream.answer(setService(service('demo/lost')), sync);
  t.strictSame((await sink.next()).changed, ['demo/lost']);
  await stream.request();
  t.equal(errors.size, 0);
});
