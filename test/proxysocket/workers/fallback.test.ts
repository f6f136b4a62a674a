import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { dataPlaneFault } from '../../../src/proxysocket/events.ts';
import { createLinuxWorkers } from '../../../src/proxysocket/workers/create.ts';
import { order } from '../../support/crashing-order.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { collect, openDescriptors } from '../../support/sockets.ts';
import { echoServer } from '../../support/tcp-peers.ts';
import { tcpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

const module = new URL('../../support/crashing-worker.ts', import.meta.url);
const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };

linuxTest('after three deaths among linux workers, node workers take their places', async (t) => {
  order(0);
  const echo = await echoServer(t);
  const udp = await UdpBackend.start(t);
  const before = openDescriptors();
  const engine = await createLinuxWorkers(2, { module, backoff });
  t.teardown(() => engine.destroy());
  const [web, dns] = [tcpSpec([echo.endpoint]), tcpSpec([udp.spec], { name: 'test/dns:dns' })];
  await engine.apply([
    { kind: 'set', spec: web },
    { kind: 'set', spec: { ...dns, protocol: 'UDP' } },
  ]);
  const portOf = (name: string): number => {
    const [listener] = engine.snapshot(new Set([name]))[0]?.listeners ?? [];
    return listener?.state === 'listening' ? listener.boundPort : 0;
  };
  const [port, names] = [portOf(web.name), portOf(dns.name)];
  const counters = () => engine.snapshot(new Set([web.name]))[0]?.counters;
  /** A connection from each of some addresses: whichever worker they come to, each answers. */
  const ask = async (): Promise<Socket[]> => {
    const sockets = Array.from({ length: 8 }, (_, n) =>
      connect({ port, host: '127.0.0.1', localAddress: `127.0.4.${n + 1}` }),
    );
    for (const socket of sockets) {
      socket.write('x');
      t.equal(String((await once(socket, 'data'))[0]), 'x');
    }
    return sockets;
  };
  const first = await ask();
  const ends = first.map(async (socket) => {
    try {
      await once(socket, 'close');
    } catch (error) {
      t.match(error, { code: 'ECONNRESET' });
    }
  });

  const faults = collect(t, dataPlaneFault);
  const lost = () => faults.filter(({ what }) => what === 'worker-lost').length;
  for (let deaths = 1; deaths <= 3; deaths += 1) {
    order(1);
    await engine.apply([]);
    // Whichever of them wakes first.
    await engine.apply([{ kind: 'endpoints', name: web.name, endpoints: web.endpoints }]);
    await until(() => lost() === deaths);
  }
  await until(() => faults.some(({ what }) => what === 'given-up'));
  t.equal(engine.kind, 'node', 'one of them is, and the other one when it dies');
  const given = faults.find(({ what }) => what === 'given-up');
  t.match(given?.error.message, 'the node engine carries on');

  await engine.apply([{ kind: 'endpoints', name: web.name, endpoints: web.endpoints }]);
  t.same([portOf(web.name), portOf(dns.name)], [port, names]);
  const again = await ask();
  await until(() => counters()?.connections === 16);
  t.equal(counters()?.bytesIn, 16, 'counters go on from where they were');
  const client = await UdpClient.open(t);
  t.equal(await client.ask('who?', names), 'who?');
  client.close();

  for (const socket of [...first, ...again]) socket.destroy();
  await Promise.all(ends);
  await engine.destroy();
  await until(() => openDescriptors() <= before + 1);
});
