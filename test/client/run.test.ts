import t from 'tap';
import type { KpngError } from '../../src/errors.ts';
import { run, type ServiceItem } from '../../src/index.ts';
import { startKpngServer } from '../support/kpng-server.ts';
import { Mailbox } from '../support/mailbox.ts';
import { endpoint, reset, service, setEndpoint, setService, sync } from '../support/messages.ts';

const first = [
  reset,
  setService(service('demo/web', { ports: [{ name: 'http', port: 80 }] })),
  setEndpoint('demo/web/web-1', endpoint('10.1.0.6')),
  setEndpoint('demo/web/web-0', endpoint('10.1.0.5')),
  setService(service('demo/api')),
  sync,
];

t.test('a handler gets every service with its endpoints, typed, in order', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const calls = new Mailbox<{ items: ServiceItem[]; changed: string[] }>('a call of the handler');
  const stop = new AbortController();
  const running = run(
    async (items, changed) => {
      const port: number | undefined = [...items].at(-1)?.service.ports[0]?.port;
      t.equal(port, 80, 'items may be iterated more than once');
      calls.put({ items: [...items], changed: [...changed].sort() });
    },
    { api: server.target.text, nodeName: 'node-a', signal: stop.signal },
  );
  const stream = await server.stream();
  t.equal((await stream.request()).nodeName, 'node-a');
  stream.send(...first);
  const { items, changed } = await calls.take();
  t.strictSame(changed, ['demo/api', 'demo/web']);
  t.strictSame(items, [
    { key: 'demo/api', service: service('demo/api'), endpoints: [], endpointKeys: [] },
    {
      key: 'demo/web',
      service: service('demo/web', { ports: [{ name: 'http', port: 80 }] }),
      endpoints: [endpoint('10.1.0.5'), endpoint('10.1.0.6')],
      endpointKeys: ['web-0', 'web-1'],
    },
  ]);
  await stream.request();
  stream.send(setEndpoint('demo/api/x', endpoint('10.1.0.7')), sync);
  const next = await calls.take();
  t.strictSame(next.changed, ['demo/api']);
  t.equal(next.items.length, 2, 'the whole state each time');
  stop.abort();
  await running;
});

t.test('a handler that throws is reported and gets its keys again', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const errors: KpngError[] = [];
  const seen = new Mailbox<string[]>('a call of the handler');
  const stop = new AbortController();
  let calls = 0;
  const running = run(
    (_items, changed) => {
      seen.put([...changed].sort());
      if (++calls === 1) throw new Error('not today');
    },
    { api: server.target.text, signal: stop.signal, onError: (error) => errors.push(error) },
  );
  const stream = await server.stream();
  await stream.request();
  stream.send(...first);
  await seen.take();
  await stream.request();
  stream.send(setService(service('demo/new')), sync);
  t.strictSame(await seen.take(), ['demo/api', 'demo/new', 'demo/web']);
  stop.abort();
  await running;
  t.strictSame(
    errors.map(({ code }) => code),
    ['KPNG_SINK_FAILED'],
  );
  t.match(errors[0]?.message, /not today/);
});

t.test('once: ends after the first call, or with its error', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const answer = async () => {
    const stream = await server.stream();
    await stream.request();
    stream.send(...first);
  };
  const options = { api: server.target.text, once: true, onError: () => {} };
  let services = 0;
  await Promise.all([run((items) => void (services = [...items].length), options), answer()]);
  t.equal(services, 2);
  const cause = new Error('no');
  const failing = run(() => Promise.reject(cause), options);
  await Promise.all([t.rejects(failing, { code: 'KPNG_SINK_FAILED', cause }), answer()]);
});

t.test('wrong options reject at once', async (t) => {
  const handler = () => void t.fail('called');
  await t.rejects(run(handler, { api: 'nowhere' }), { code: 'KPNG_USAGE' });
  await t.rejects(run(handler, { tls: { ca: '/no/such/file' } }), {
    code: 'KPNG_TLS_FILE',
    message: /^--tls-ca \/no\/such\/file/,
  });
  await t.rejects(run(handler, { tls: { key: 'x' } }), { code: 'KPNG_TLS_FILE' });
});
