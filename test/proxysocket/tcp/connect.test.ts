import { once } from 'node:events';
import t from 'tap';
import { connectFailed, endpointPicked, rejected } from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect, freePort, openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import {
  blackHole,
  connectionEnd,
  endpointAt,
  kernelSockets,
  namedServer,
  refusingEndpoint,
  request,
  tcpClient,
} from '../../support/tcp-peers.ts';
import { TcpRig, tcpScene, tcpSpec } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

/** Vectors of kube-proxy's userspace mode, kept or deliberately different. */

t.test('T4 (kept): the second endpoint serves, and the affinity goes to it', async (t) => {
  const rig = new TcpRig(t, { clock: new FakeClock() });
  const [picked, failed] = [collect(t, endpointPicked), collect(t, connectFailed)];
  const [bad, good] = [await refusingEndpoint(t), await namedServer(t, 'good')];
  const port = await rig.serve([bad, good.endpoint, (await namedServer(t, 'next')).endpoint], {
    affinity: { kind: 'clientIP', timeoutSeconds: 10_800 },
  });
  t.equal(await request(t, port), 'good');
  t.match(failed, [{ attempt: 1, cause: 'refused', endpoint: `${bad.address}:${bad.port}` }]);
  t.match(rig.counters, { connections: 1, retries: 1, connectErrors: { refused: 1 } });
  const { counts, sum } = rig.counters.connectSeconds;
  t.strictSame([counts.reduce((all, each) => all + each), sum], [1, 0], 'the clock stands still');
  t.equal(await request(t, port), 'good');
  t.match(picked[0], { attempt: 1, endpoints: 3, sticky: false, sourceAddress: /^127\.0\.0\.1:/ });
  t.match(picked.at(-1), { attempt: 1, sticky: true, endpoint: `127.0.0.1:${good.port}` });
  t.equal(await request(t, port, '', { localAddress: '127.0.0.2' }), 'next');
});

t.test('T5 (different): attempts of 250, 500, 1000 and 2000 ms, then the end', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const picked = collect(t, endpointPicked);
  const port = await rig.serve([await blackHole(t)]);
  const [a, b] = [connectionEnd(t, port), connectionEnd(t, port)];
  // Different: the second client is looked at while the first one waits.
  await until(() => picked.length === 2);
  const attempts = (): number => picked.length / 2;
  for (const [index, ms] of [250, 500, 1000].entries()) {
    clock.advance(ms - 1);
    t.equal(attempts(), index + 1);
    clock.advance(1);
    t.equal(attempts(), index + 2);
  }
  clock.advance(1999);
  t.equal(rig.counters.rejectedConnectFailed, 0);
  clock.advance(1);
  t.same(await Promise.all([a, b]), ['ECONNRESET', 'ECONNRESET']);
  t.match(rig.counters, { connectErrors: { timeout: 8 }, rejectedConnectFailed: 2 });
  t.ok(clock.pending <= 1, 'no timer is left but that of the keepalive look');
});

// Only the tables of Linux report the attempts.
const skip = process.platform !== 'linux' && 'only on linux';
t.test('a client that leaves during the connect leaves nothing behind', { skip }, async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const picked = collect(t, endpointPicked);
  const hole = await blackHole(t);
  const attempts = (): number =>
    kernelSockets().filter(({ remotePort, state }) => remotePort === hole.port && state === 2)
      .length;
  const port = await rig.serve([hole]);
  for (const leave of ['resetAndDestroy', 'destroy', 'end'] as const) {
    const client = await tcpClient(t, port);
    client[leave]();
  }
  await until(() => picked.length === 3);
  // Node does not report, so the attempts run on; but not longer than they may.
  for (const ms of [250, 500, 1000, 2000]) {
    await until(() => attempts() === 3);
    clock.advance(ms);
  }
  await until(() => attempts() === 0);
  t.equal(rig.counters.rejectedConnectFailed, 3);
});

t.test('answered attempts do not time out when the event loop pauses', async (t) => {
  const server = await namedServer(t, 'there');
  const { rig, port } = await tcpScene(t, { server, limits: { connectTimeoutsMs: [100] } });
  let pauses = 0;
  const pause = (): void => {
    pauses += 1;
    // Once the attempt is with the kernel.
    setImmediate(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 150));
  };
  endpointPicked.subscribe(pause);
  t.teardown(() => endpointPicked.unsubscribe(pause));
  for (let index = 0; index < 5; index += 1) t.equal(await request(t, port), 'there');
  t.equal(pauses, 5);
  t.equal(rig.counters.connectErrors.timeout, 0);
});

t.test('an endpoint that is removed during the connect is replaced by another', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const picked = collect(t, endpointPicked);
  const good = await namedServer(t, 'good');
  const port = await rig.serve([await blackHole(t)]);
  const before = await settledDescriptors();
  const answer = request(t, port);
  await until(() => picked.length === 1);
  // The clock stands still: only the change can help.
  await rig.endpoints([good.endpoint]);
  t.equal(await answer, 'good');
  clock.advance(10_000);
  t.match(rig.counters, { retries: 0, connectErrors: { timeout: 0 }, connections: 1 });
  await until(() => openDescriptors() <= before);

  await rig.endpoints([await blackHole(t)]);
  const end = connectionEnd(t, port);
  await until(() => picked.length === 3);
  await rig.endpoints([]);
  t.equal(await end, 'ECONNRESET', 'without another one the client is reset');
  t.equal(rig.counters.rejectedNoEndpoint, 1);
});

t.test('an endpoint that the host has no route to is the one at fault', async (t) => {
  const rig = new TcpRig(t, { clock: new FakeClock() });
  const good = await namedServer(t, 'good');
  // Linux refuses to connect to the broadcast address.
  const port = await rig.serve([endpointAt(80, '255.255.255.255'), good.endpoint]);
  t.equal(await request(t, port), 'good');
  t.equal(rig.counters.retries, 1);
});

t.test('an IPv6 client reaches an IPv4 endpoint, and the other way round', async (t) => {
  const rig = new TcpRig(t);
  const four = await namedServer(t, 'four');
  const six = await namedServer(t, 'six', '::1');
  const port6 = await rig.serve([four.endpoint], { name: 'a', listen: [{ address: '::1' }] });
  const port4 = await rig.serve([six.endpoint], { name: 'b' });
  const mixed = await rig.serve([four.endpoint, six.endpoint], {
    name: 'c',
    listen: [{ address: '::1' }],
  });
  const client = await tcpClient(t, port6, '::1');
  t.equal(String((await once(client, 'data'))[0]), 'four');
  t.equal(await request(t, port4), 'six');
  t.equal(await request(t, mixed, '', { address: '::1' }), 'six', 'its own family comes first');
});

t.test('a service that is its own endpoint refuses its clients', async (t) => {
  const rig = new TcpRig(t);
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
  const { failing } = (await rig.engine.inspect?.({ maxConnections: 0, failing: true })) ?? {};
  t.equal(failing?.size, 1, 'any other endpoint would be preferred');
  t.equal(events.length, 3);
  await until(() => openDescriptors() <= before);
});

t.test('once the loop is fixed, the endpoint is used again', async (t) => {
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

t.test('packet rules that redirect an endpoint to the service are a loop, too', async (t) => {
  const rig = new TcpRig(t, { clock: new FakeClock() });
  // Stands for what the rules would do: a client that connects there would get to the service.
  const server = await namedServer(t, 'the rules are gone');
  const spec = { ...tcpSpec([server.endpoint]), portals: [server.endpoint] };
  await rig.engine.apply([{ kind: 'set', spec }]);
  t.equal(await connectionEnd(t, rig.port()), 'ECONNRESET');
  t.equal(server.sockets.length, 0);
  await rig.engine.apply([{ kind: 'set', spec: { ...spec, portals: [] } }]);
  t.equal(await request(t, rig.port()), 'the rules are gone');
  await rig.remove();
});
