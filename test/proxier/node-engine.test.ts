/** The proxier with the engine on Node's sockets: bytes from a client to an endpoint and back. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { factsOf } from '../../src/observe/service-state.ts';
import { AddressPortal } from '../../src/portal/address.ts';
import { Proxier } from '../../src/proxier/proxier.ts';
import { createNodeEngine } from '../../src/proxysocket/node/engine.ts';
import { endpoint, entry, ports, TestView } from '../support/messages.ts';
import { echoServer, endOf, request, tcpClient, tcpServer } from '../support/tcp-peers.ts';
import { until } from '../support/until.ts';

const skip = process.platform === 'darwin' ? 'macOS has only 127.0.0.1' : false;

/** Addresses of this test alone, so that fixed ports are free on them. */
const own = (last: number): string =>
  `127.${64 + (process.pid & 63)}.${(process.pid >> 6) & 255}.${last}`;

function rig(t: Test) {
  const engine = createNodeEngine();
  const proxier = new Proxier({ engine, portal: new AddressPortal() });
  const view = new TestView();
  t.teardown(async () => {
    await proxier.close();
    await engine.destroy();
  });
  return { engine, proxier, view };
}

/** A service at two addresses, with an endpoint on 127.0.0.1. */
function web(portText: string, target: number) {
  const more = { ips: { clusterIPs: { v4: [own(1), own(2)] } }, ports: ports(portText) };
  const portOverrides = [{ name: 'p', port: target }];
  return entry('d/web', more, { pod: endpoint('127.0.0.1', { portOverrides }) });
}

async function echo(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  return String(answer);
}

t.test('connections outlive changes, drains, and the end of their service', { skip }, async (t) => {
  const { proxier, view, engine } = rig(t);
  const { port } = await echoServer(t);
  const other = await tcpServer(t, undefined, own(2), 8080);
  await proxier.sync(view.set(web('p TCP 8080 0', port)));
  t.match(proxier.snapshot().problems, [
    { code: 'KPNG_LISTEN_ADDRESS_IN_USE', count: 1, servicePort: 'd/web:p' },
  ]);
  const state = () => engine.snapshot().map((each) => factsOf(each, proxier, new Map()).state);
  t.same(state(), ['degraded']);
  const client = await tcpClient(t, 8080, own(1));
  t.equal(await echo(client, 'one'), 'one', 'it does not stop the others');
  await other.kill();
  await until(() => proxier.snapshot().problems.length === 0);
  t.same(state(), ['ok']);
  t.equal(await request(t, 8080, 'later', { address: own(2) }), 'later');

  await proxier.sync(view.set(web('p TCP 8081 0', port)));
  t.equal(await endOf(connect(8080, own(1))), 'ECONNREFUSED');
  await proxier.drain({ kind: 'service', service: 'd/web' });
  t.equal(await endOf(connect(8081, own(1))), 'ECONNRESET');
  t.match(engine.snapshot()[0]?.counters, { rejectedDrained: 1, rejectedNoEndpoint: 0 });
  t.equal(await echo(client, 'two'), 'two');
  await proxier.undrain();
  t.equal(await request(t, 8081, 'again', { address: own(1) }), 'again');

  await proxier.sync(view.remove('d/web'));
  t.equal(await endOf(connect(8081, own(1))), 'ECONNREFUSED');
  t.equal(await echo(client, 'three'), 'three');
});

t.test('V18 (different): UDP sessions end with their endpoint', { skip }, async (t) => {
  const { proxier, view } = rig(t);
  const client = createSocket('udp4');
  t.teardown(() => client.close());
  for (const name of ['a', 'b']) {
    const pod = createSocket('udp4', (_, from) => pod.send(name, from.port, from.address));
    pod.bind(0, '127.0.0.1');
    await once(pod, 'listening');
    t.teardown(() => pod.close());
    await proxier.sync(view.set(web('p UDP 5353 0', pod.address().port)));
    client.send('?', 5353, own(1));
    const [answer] = (await once(client, 'message')) as [Buffer];
    t.equal(String(answer), name, 'the endpoint of now answers the client');
  }
});
