import t from 'tap';
import { opInvalid } from '../../src/store/events.ts';
import type { LocalView } from '../../src/store/local-view.ts';
import { startClientRig, type ClientRig, type ServerStream } from '../support/kpng-server.ts';
import {
  deleteEndpoint,
  deleteService,
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

const stateLimits = { maxEntries: 20, maxBytes: 20_000 };
const numbers = [...Array(21).keys()];

async function served(rig: ClientRig): Promise<{ stream: ServerStream; view: LocalView }> {
  const stream = await rig.server.answer(reset, web, sync);
  const { view } = await rig.sink.next();
  await stream.request();
  return { stream, view };
}

const floods = {
  services: numbers.map((n) => setService(service(`demo/s${n}`))),
  'endpoints without a service': numbers.map((n) =>
    setEndpoint(`demo/lost/${n}`, endpoint('10.0.0.1')),
  ),
  'deletes of what is not there': numbers.map((n) =>
    n % 2 === 0 ? deleteService(`demo/s${n}`) : deleteEndpoint(`demo/web/${n}`),
  ),
  'damaged values': numbers.map((n) => setBytes(1, `demo/s${n}`, BAD)),
  bytes: [setService(service('demo/big', { type: 'x'.repeat(20_000) }))],
  'small parts': [setBytes(1, 'demo/big', portsOf('demo', 'big', 500))],
  'bytes in a path': [deleteService(`demo/${'x'.repeat(20_000)}`)],
};

/** A service whose many ports take two bytes each on the wire. */
function portsOf(namespace: string, name: string, ports: number): Buffer {
  const text = (field: number, value: string) =>
    Buffer.concat([Buffer.from([(field << 3) | 2, value.length]), Buffer.from(value)]);
  return Buffer.concat([
    text(1, namespace),
    text(2, name),
    ...Array(ports).fill(Buffer.from([(6 << 3) | 2, 0])),
  ]);
}

for (const [what, flood] of Object.entries(floods)) {
  t.test(`a change set with too much is dropped before its Sync: ${what}`, async (t) => {
    const rig = await startClientRig(t, { stateLimits });
    const { server, sink, errors } = rig;
    const { stream, view } = await served(rig);
    stream.send(...flood);
    for (;;) {
      const { code } = await errors.take();
      if (code !== 'KPNG_OP_INVALID') {
        t.equal(code, 'KPNG_STATE_TOO_LARGE');
        break;
      }
    }
    await stream.closed;
    t.equal(view.size, 1, 'what is served stays');
    await rig.retryAfter(1000);
    await server.answer(reset, web, setService(service('demo/api')), sync);
    t.strictSame((await sink.next()).shape, ['demo/api()', 'demo/web()']);
  });
}

t.test('a state that grows over many change sets has the same limit', async (t) => {
  const rig = await startClientRig(t, { stateLimits });
  const { stream, view } = await served(rig);
  for (const n of numbers.slice(0, 19)) {
    stream.send(setEndpoint(`demo/lost/${n}`, endpoint('10.0.0.1')), sync);
    await stream.request();
    t.equal((await rig.errors.take()).code, 'KPNG_OP_INVALID');
  }
  stream.send(deleteEndpoint('demo/lost/0'), deleteEndpoint('demo/lost/1'), sync);
  await stream.answer(setService(service('demo/a')), setService(service('demo/b')), sync);
  await stream.answer(setService(service('demo/c')), sync);
  t.equal((await rig.errors.take()).code, 'KPNG_STATE_TOO_LARGE');
  t.equal(view.size, 3);
});

t.test('a server whose state is always too large is retried with growing delays', async (t) => {
  const rig = await startClientRig(t, { stateLimits });
  for (const wait of [1000, 1600, 2560]) {
    const { stream } = await served(rig);
    stream.send(...floods.services);
    t.equal((await rig.errors.take()).code, 'KPNG_STATE_TOO_LARGE');
    await rig.retryAfter(wait);
  }
});
