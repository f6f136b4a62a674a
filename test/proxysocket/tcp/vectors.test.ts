/**
 * The vectors of kube-proxy's userspace mode for TCP sockets, kept or deliberately different.
 */
import { once } from 'node:events';
import t from 'tap';
import {
  connectFailed,
  endpointPicked,
  rejected,
  relayEnded,
} from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import {
  blackHole,
  connectionEnd,
  digestServer,
  echoServer,
  endpointAt,
  namedServer,
  readAll,
  refusingEndpoint,
  request,
} from '../../support/tcp-peers.ts';
import { TcpRig, tcpSpec, udpSpec, relayed, echo } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';
import { collect, freePort, sha256 } from '../../support/sockets.ts';

t.test('T1 (kept): a service with a TCP and a UDP port carries both', async (t) => {
  const rig = new TcpRig(t);
  const tcp = await echoServer(t);
  const listen = [{ port: await freePort() }];
  const udp = await UdpBackend.start(t);
  const p = tcpSpec([tcp.endpoint], { name: 'ns/multi:p', listen });
  const q = udpSpec([udp.spec], { name: 'ns/multi:q', listen });
  await rig.engine.apply([
    { kind: 'set', spec: p },
    { kind: 'set', spec: q },
  ]);
  t.equal(await request(t, rig.port('ns/multi:p'), 'aaaaa'), 'aaaaa');
  t.equal(await (await UdpClient.open(t)).ask('datagram', rig.port('ns/multi:q')), 'datagram');
  t.same(rig.engine.snapshot(new Set(['ns/multi:x'])), [], 'there is no port x');
});

t.test('T2 (kept): a deleted service port refuses connections', async (t) => {
  const rig = new TcpRig(t);
  const port = await rig.serve([(await echoServer(t)).endpoint]);
  t.equal(await request(t, port, 'up'), 'up');
  await rig.remove();
  t.equal(await connectionEnd(t, port), 'ECONNREFUSED', 'at once, not within 50 probes');
  t.same(rig.engine.snapshot(), []);
});

t.test('T3 (different): without an endpoint there is a reset, not a FIN', async (t) => {
  const rig = new TcpRig(t);
  const events = collect(t, rejected);
  const port = await rig.serve([]);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  t.match(events, [{ reason: 'no-endpoint', remoteAddress: /^127\.0\.0\.1:\d+$/ }]);
  t.match(rig.counters, { connections: 1, rejectedNoEndpoint: 1, heldTotal: 0, active: 0 });
});

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

t.test("T6 (different): the answer after the client's FIN arrives", async (t) => {
  const rig = new TcpRig(t);
  const ended = collect(t, relayEnded);
  const port = await rig.serve([(await digestServer(t)).endpoint]);
  t.equal(await request(t, port, 'all I have'), sha256(Buffer.from('all I have')));
  await until(() => rig.counters.active === 0);
  t.match(ended, [{ reason: 'closed', bytesIn: 10, bytesOut: 64 }]);
});

t.test('T7 (kept): connections outlive changes and the end of their service port', async (t) => {
  const { rig, server, client } = await relayed(t, {}, echo);
  const say = async (text: string): Promise<void> => {
    client.write(text);
    t.equal(String((await once(client, 'data'))[0]), text);
  };
  await say('at first');
  await rig.serve([server.endpoint], { affinity: { kind: 'clientIP', timeoutSeconds: 60 } });
  await say('other affinity');
  await rig.serve([server.endpoint], { listen: [{ address: '127.0.0.3' }] });
  await say('other address');
  await rig.endpoints([endpointAt(1)]);
  await say('endpoint gone');
  await rig.remove();
  await say('service gone');
  client.end('bye');
  t.equal(String(await readAll(client)), 'bye');
});
