import { once } from 'node:events';
import t from 'tap';
import { endpointInvalid } from '../../src/proxysocket/events.ts';
import { FakeHost, listenSpec } from '../support/fake-host.ts';
import { echoServer, endpointAt, request, tcpClient } from '../support/tcp-peers.ts';
import { echo, relayed, TcpRig, tcpSpec } from '../support/tcp-rig.ts';
import { until } from '../support/until.ts';
import { collect } from '../support/sockets.ts';

t.test('batches are applied one after another', async (t) => {
  const host = new FakeHost();
  const places = Array.from({ length: 300 }, (_, i) => `10.0.${i >> 8}.${i & 255}:80`);
  const batches = [places, [], ['10.0.0.1:80']];
  await Promise.all(batches.map((each) => host.set(listenSpec('a', each))));
  t.equal(host.tcp.log.length, 601);
  t.same(host.states('a'), ['80']);
});

t.test('endpoints for an unknown service port: an error, and the rest is done', async (t) => {
  const host = new FakeHost();
  const apply = host.engine.apply([
    { kind: 'endpoints', name: 'ns/missing:p', endpoints: [] },
    { kind: 'set', spec: listenSpec('a', ['10.0.0.1:80']) },
  ]);
  await t.rejects(apply, { code: 'KPNG_SERVICE_INVALID', message: /ns\/missing:p/ });
  t.same(host.states('a'), ['80']);
  await t.resolves(host.engine.apply([{ kind: 'remove', name: 'ns/missing:p' }]));
});

t.test('an endpoint that is no ip:port is left out and reported', async (t) => {
  const host = new FakeHost();
  const invalid = collect(t, endpointInvalid);
  const bad = [endpointAt(0), endpointAt(65_536), endpointAt(1.5), endpointAt(80, 'example.org')];
  const good = endpointAt(80, '10.0.0.1');
  await host.set({ ...listenSpec('a', []), endpoints: [...bad, good] });
  t.match(host.engine.snapshot(), [{ name: 'a', endpoints: 1 }]);
  t.same(
    invalid.map(({ endpoint }) => endpoint),
    ['127.0.0.1:0', '127.0.0.1:65536', '127.0.0.1:1.5', 'example.org:80'],
  );
});

t.test('a closed engine takes no changes and tries nothing again', async (t) => {
  for (const how of ['close', 'destroy'] as const) {
    const host = new FakeHost();
    host.tcp.errors.set('10.0.0.2:80', 'EADDRNOTAVAIL');
    await host.set(listenSpec('a', ['10.0.0.1:80', '10.0.0.2:80']));
    await Promise.all([host.engine[how](), host.engine[how]()]);
    await host.engine[how]();
    const { attempts } = host.tcp;
    host.clock.advance(60_000);
    t.equal(host.tcp.attempts, attempts);
    t.equal(host.tcp.size, 0);
    t.equal(host.tcp.destroyed, how === 'destroy');
    t.same(host.engine.snapshot(), []);
    await t.rejects(host.set(listenSpec('b', [])), { code: 'KPNG_SINK_FAILED' });
  }
});

t.test('closing waits for relays, which continue; destroying does not', async (t) => {
  const { rig, client } = await relayed(t, {}, echo);
  await until(() => rig.counters.active === 1);
  let closed = false;
  const closing = rig.engine.close().then(() => (closed = true));
  await until(() => rig.snapshot().draining === true);
  client.write('still there');
  t.equal(String((await once(client, 'data'))[0]), 'still there');
  t.equal(closed, false);
  client.end();
  await closing;
  t.same(rig.engine.snapshot(), []);
});

t.test('a removed service port stays in the snapshot while its relays run', async (t) => {
  const rig = new TcpRig(t);
  const server = await echoServer(t);
  const port = await rig.serve([server.endpoint]);
  t.equal(await request(t, port, 'first'), 'first');
  const client = await tcpClient(t, port);
  await until(() => rig.counters.active === 1);

  await rig.remove();
  t.match(rig.snapshot(), { draining: true, listeners: [], endpoints: 0 });
  const named = rig.engine.snapshot().map(({ name }) => name);
  t.same(rig.engine.names?.(), named, 'a reader that takes it in parts misses nothing');
  t.match(rig.counters, { connections: 2, active: 1, bytesIn: 5 });
  t.match(rig.engine.activity?.(), { servicePorts: 1, active: 1 });
  // Set again meanwhile, its counters continue: what a scrape sees never goes back.
  await rig.serve([server.endpoint]);
  t.notOk('draining' in rig.snapshot());
  t.equal(await request(t, rig.port(), 'again'), 'again');
  t.match(rig.counters, { connections: 3, bytesIn: 10 });

  await rig.remove();
  client.end();
  await until(() => rig.engine.snapshot().length === 0);
  await rig.serve([server.endpoint]);
  t.equal(rig.counters.connections, 0, 'after the last relay it is a new one');
});

t.test('a name that comes back with another protocol has new counters', async (t) => {
  const { rig, client } = await relayed(t, {}, echo);
  await until(() => rig.counters.active === 1);
  await rig.engine.apply([{ kind: 'set', spec: { ...tcpSpec([]), protocol: 'UDP' } }]);
  t.match(rig.snapshot(), { protocol: 'UDP', counters: { connections: 0, active: 0 } });
  client.end('bye');
  t.equal(String((await once(client, 'data'))[0]), 'bye');
});
