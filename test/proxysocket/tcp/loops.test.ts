import t from 'tap';
import { connectFailed, rejected } from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect, freePort, openDescriptors } from '../../support/sockets.ts';
import { connectionEnd, endpointAt, namedServer, request } from '../../support/tcp-peers.ts';
import { TcpRig, tcpSpec, WAYS } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

for (const { way, documentedOnly } of WAYS) {
  t.test(`${way}: a service whose endpoint is itself refuses its clients`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const failed = collect(t, connectFailed);
    const events = collect(t, rejected);
    const port = await rig.serve([]);
    await rig.endpoints([endpointAt(port)]);
    const before = openDescriptors();
    for (let client = 1; client <= 3; client += 1) {
      t.equal(await connectionEnd(t, port), 'ECONNRESET');
      t.equal(rig.counters.connections, client, 'there is no connection but that of the client');
    }
    t.match(failed[0], {
      endpoint: `127.0.0.1:${port}`,
      cause: 'loop',
      error: { code: 'KPNG_ENDPOINT_LOOP', servicePort: 'test/web:http', message: /itself/ },
    });
    t.match(rig.counters, { connectErrors: { loop: 3 }, rejectedConnectFailed: 3, active: 0 });
    t.equal(events.length, 3);
    await until(() => openDescriptors() <= before);
  });
}

t.test('the other endpoints of such a service are used', async (t) => {
  const rig = new TcpRig(t, { clock: new FakeClock() });
  const good = await namedServer(t, 'good');
  const port = await rig.serve([]);
  await rig.endpoints([endpointAt(port), good.endpoint]);
  for (let client = 0; client < 6; client += 1) t.equal(await request(t, port), 'good');
  t.match(rig.counters, { connectErrors: { loop: 1 }, connections: 6 }, 'it is skipped');
});

t.test('services that are endpoints of each other, one of them on every address', async (t) => {
  const rig = new TcpRig(t);
  const ping = await rig.serve([], { name: 'ping', listen: [{ address: '0.0.0.0' }] });
  const pong = await rig.serve([endpointAt(ping, '127.8.7.6')], { name: 'pong' });
  await rig.endpoints([endpointAt(pong)], 'ping');
  t.equal(await connectionEnd(t, ping), 'ECONNRESET');
  t.equal(await connectionEnd(t, pong), 'ECONNRESET');
  t.equal(rig.snapshot('ping').counters.connections, 1);
  t.equal(rig.snapshot('pong').counters.connections, 1);
});

t.test('services may be endpoints of services', async (t) => {
  const rig = new TcpRig(t);
  const server = await namedServer(t, 'far away');
  const back = await rig.serve([server.endpoint], { name: 'back' });
  const middle = await rig.serve([endpointAt(back)], { name: 'middle' });
  const front = await rig.serve([endpointAt(middle)], { name: 'front' });
  t.equal(await request(t, front), 'far away');
});

t.test('once the loop is mended, the endpoint is used again', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const port = await freePort();
  const here = { address: '127.0.0.1', port, traffic: 'internal' } as const;
  const server = await namedServer(t, 'mended');
  const back = tcpSpec([server.endpoint], { name: 'back', listen: [here] });
  const web = { ...tcpSpec([endpointAt(port)]), listen: [{ ...here, address: '127.0.0.9' }, here] };
  await rig.engine.apply([{ kind: 'set', spec: web }]);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  // The address passes to another service; the endpoint is the same.
  await rig.engine.apply([
    { kind: 'set', spec: { ...web, listen: web.listen.slice(0, 1) } },
    { kind: 'set', spec: back },
  ]);
  t.equal(await request(t, port, '', { address: '127.0.0.9' }), 'mended');
  t.equal(rig.counters.connectErrors.loop, 1);
});

t.test('packet rules that lead an endpoint to the service are a loop, too', async (t) => {
  const rig = new TcpRig(t, { clock: new FakeClock() });
  // Stands for what the rules would do: whoever connects there would get to the service.
  const server = await namedServer(t, 'the rules are gone');
  const spec = { ...tcpSpec([server.endpoint]), portals: [server.endpoint] };
  await rig.engine.apply([{ kind: 'set', spec }]);
  t.equal(await connectionEnd(t, rig.port()), 'ECONNRESET');
  t.equal(server.sockets.length, 0);
  await rig.engine.apply([{ kind: 'set', spec: { ...spec, portals: [] } }]);
  t.equal(await request(t, rig.port()), 'the rules are gone');
  await rig.remove();
});
