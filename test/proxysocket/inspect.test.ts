/** What an engine reports about single connections and endpoints when it is asked. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import t, { type Test } from 'tap';
import type { Engine } from '../../src/proxysocket/engine.ts';
import {
  type EndpointSnapshot,
  inspectAll,
  type Inspectable,
  type Inspection,
  MAX_INSPECTED,
  mergeInspections,
  NOTHING,
} from '../../src/proxysocket/inspect.ts';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { refusingEndpoint, tcpClient, tcpServer } from '../support/tcp-peers.ts';
import { TcpRig, udpSpec, relayed, echo } from '../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../support/udp-peers.ts';
import { until } from '../support/until.ts';

const WEB = 'test/web:http';

async function inspect(engine: Engine, names?: string[], most = 100): Promise<Inspection> {
  const servicePorts = names && { servicePorts: names };
  const found = await engine.inspect?.({ maxConnections: most, ...servicePorts });
  if (found === undefined) throw new Error('the engine cannot report');
  return found;
}

function textOf({ address, port }: EndpointSpec): string {
  return `${address}:${port}`;
}

/** A client that has got something. */
async function answered(t: Test, port: number): Promise<Socket> {
  const client = await tcpClient(t, port);
  await once(client, 'data');
  return client;
}

t.test('open connections and sessions are reported with their peers and counts', async (t) => {
  const clock = new FakeClock();
  const { rig, server, client } = await relayed(t, { clock }, echo);
  client.write('hello');
  await once(client, 'data');
  clock.advance(3000);
  const tcp = await inspect(rig.engine);
  const tcpPeers = { client: `127.0.0.1:${client.localPort}`, endpoint: textOf(server.endpoint) };
  const open = { servicePort: WEB, protocol: 'TCP', state: 'open', in: 5, out: 5 };
  t.match(tcp.connections, [{ ...tcpPeers, ...open }]);
  t.ok((tcp.connections[0]?.ageMs ?? 0) >= 3000);
  t.match(tcp, { matched: 1, complete: true });

  const backend = await UdpBackend.start(t);
  const servicePort = 'test/dns';
  await rig.engine.apply([{ kind: 'set', spec: udpSpec([backend.spec]) }]);
  const udp = await UdpClient.open(t);
  await udp.ask('one', rig.port(servicePort));
  await udp.ask('two', rig.port(servicePort));
  const endpoint = textOf(backend.spec);
  const { connections, endpoints } = await inspect(rig.engine, [servicePort]);
  const peers = { servicePort, client: `127.0.0.1:${udp.port}`, endpoint };
  t.match(connections, [{ ...peers, protocol: 'UDP', state: 'open', in: 2, out: 2 }]);
  const counts = { active: 1, connections: 1, bytesIn: 6, bytesOut: 6 };
  t.match(endpoints, [{ endpoint, failing: false, ...counts }]);
});

t.test('connections come oldest first, of one service port, as many as asked for', async (t) => {
  const rig = new TcpRig(t);
  const server = await tcpServer(t, (socket) => socket.write('x'));
  const ports = {
    a: await rig.serve([server.endpoint], { name: 'test/a' }),
    b: await rig.serve([server.endpoint], { name: 'test/b' }),
  };
  const locals: (number | undefined)[] = [];
  for (const name of ['a', 'b', 'a', 'a'] as const) {
    const client = await answered(t, ports[name]);
    if (name === 'a') locals.push(client.localPort);
  }
  const two = await inspect(rig.engine, ['test/a'], 2);
  const oldest = locals.slice(0, 2).map((local) => ({ client: `127.0.0.1:${local}` }));
  t.match(two.connections, oldest);
  t.equal(two.connections.length, 2);
  t.equal(two.matched, 3, 'all are counted');
  t.equal((await inspect(rig.engine)).matched, 4);
  t.strictSame((await inspect(rig.engine, ['test/c'])).connections, []);
});

t.test('endpoints have their own figures: use, bytes, connect time, the last error', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const server = await tcpServer(t, (socket) => {
    socket.write('welcome');
    socket.resume().on('end', () => socket.end());
  });
  const dead = await refusingEndpoint(t);
  const port = await rig.serve([dead, server.endpoint]);
  const [client] = [await answered(t, port), await answered(t, port)];
  client.end();
  await until(() => rig.counters.active === 1);
  clock.advance(60_000);
  const { endpoints } = await inspect(rig.engine, [WEB]);
  const [refusing, serving] = [...endpoints].sort((a, b) => a.active - b.active);
  const lastError = { cause: 'refused', agoMs: 60_000 };
  t.match(refusing, { endpoint: textOf(dead), failing: true, failingMs: 60_000, lastError });
  t.match(refusing, { active: 0, connections: 0, errors: 1, bytesIn: 0, bytesOut: 0 });
  t.match(refusing, { connectMs: undefined, connectedAgoMs: undefined });
  t.match(serving, { endpoint: textOf(server.endpoint), failing: false, failingMs: undefined });
  t.match(serving, { active: 1, connections: 2, errors: 0, bytesIn: 0, bytesOut: 14 });
  t.match(serving, { connectedAgoMs: 60_000, lastError: undefined });
  t.type(serving?.connectMs, 'number');
  t.strictSame((await inspect(rig.engine)).endpoints, [], 'only of service ports that are named');
});

t.test('of several workers’ results for an endpoint, the latest counts', async (t) => {
  const idle = { servicePort: WEB, endpoint: 'a:1', active: 0, bytesIn: 0, bytesOut: 0 };
  const unused = { ...idle, connections: 0, errors: 0, failing: false };
  const lastError = { cause: 'refused', agoMs: 3000 };
  const failed = { ...unused, errors: 2, failing: true, failingMs: 9000, lastError };
  const only = (endpoint: EndpointSnapshot): Inspection =>
    Object.assign({ ...NOTHING }, { endpoints: [endpoint] });
  const counts = { connections: 3, active: 1, bytesIn: 5, bytesOut: 6, connectMs: 4 };
  const connected = (connectedAgoMs: number) => ({ ...unused, ...counts, connectedAgoMs });
  const again = { ...connected(20), connections: 1, connectMs: 8 };
  for (const [one, other, merged] of [
    [failed, unused, { failing: true, failingMs: 9000, errors: 2 }],
    [failed, connected(1000), { failing: false, failingMs: undefined, errors: 2 }],
    [connected(1000), failed, { failing: false, connections: 3, active: 1 }],
    [failed, connected(5000), { failing: true, failingMs: 5000, connectMs: 4, lastError }],
    [connected(10), again, { connections: 4, connectMs: 5, connectedAgoMs: 10, bytesIn: 10 }],
  ] as const)
    t.match(mergeInspections([only(one), only(other)], 0).endpoints, [merged]);
});

t.test('one query inspects a limited number of connections', async (t) => {
  let looked = 0;
  function* endless(): Generator<Inspectable> {
    for (;;) {
      looked += 1;
      yield { owner: { name: 'test/a' }, inspect: () => undefined };
    }
  }
  const { matched, complete } = inspectAll(endless(), { maxConnections: 1 }, 0);
  t.equal(complete, false);
  t.equal(matched, MAX_INSPECTED);
  t.equal(looked, MAX_INSPECTED + 1);
});
