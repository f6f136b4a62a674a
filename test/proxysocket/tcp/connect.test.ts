import t from 'tap';
import { connectFailed, endpointPicked } from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect } from '../../support/sockets.ts';
import {
  blackHole,
  kernelSockets,
  namedServer,
  refusingEndpoint,
  request,
  tcpClient,
} from '../../support/tcp-peers.ts';
import { TcpRig, tcpScene } from '../../support/tcp-rig.ts';
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

t.test('families cross when a service has endpoints of the other one only', async (t) => {
  const rig = new TcpRig(t);
  const [four, six] = [await namedServer(t, '4'), await namedServer(t, '6', '::1')];
  const port = await rig.serve([four.endpoint, six.endpoint], {
    listen: [{}, { address: '::1' }],
  });
  const [address, port6] = ['::1', rig.port(undefined, 1)];
  t.equal(await request(t, port), '4', 'its own family comes first');
  t.equal(await request(t, port6, '', { address }), '6');
  await rig.endpoints([six.endpoint]);
  t.equal(await request(t, port), '6');
  await rig.endpoints([four.endpoint]);
  t.equal(await request(t, port6, '', { address }), '4');
});
