import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import t from 'tap';
import { Canary, canaryPlace } from '../../../src/portal/rules/canary.ts';

t.test('every owner has a place of its own on a loopback address', (t) => {
  const places = Array.from({ length: 200 }, (_, n) => canaryPlace(`owner${n}`, 4));
  t.equal(new Set(places.map(({ address, port }) => `${address}:${port}`)).size, 200);
  for (const { address, port } of places) {
    if (!/^127\.(12[89]|1[3-9]\d|2[0-4]\d|25[0-4])\.\d+\.\d+$/.test(address)) t.fail(address);
    if (port < 10_000 || port >= 30_000) t.fail(String(port));
  }
  t.strictSame(canaryPlace('a', 4), canaryPlace('a', 4));
  t.equal(canaryPlace('a', 6).address, '::1');
  t.end();
});

t.test('asks for a way to its port', async (t) => {
  const canary = new Canary('abc', 4);
  t.teardown(() => canary.close());
  const { place, proxyPort } = await canary.open();
  t.strictSame(place, canaryPlace('abc', 4));
  t.ok(proxyPort > 0);
});

t.test('tells whether somebody answers at the place of an owner', async (t) => {
  const canary = new Canary('abc', 4);
  t.teardown(() => canary.close());
  t.equal(await canary.probe(), 'gone', 'without rules nobody does');
  // Somebody who listens there himself stands in for the rules; Linux has all of 127.0.0.0/8.
  if (process.platform !== 'linux') return;
  const { address, port } = canaryPlace('other', 4);
  const server = createServer((socket) => socket.on('error', () => undefined).resume());
  server.listen(port, address);
  await once(server, 'listening');
  t.equal((server.address() as AddressInfo).port, port);
  t.equal(await canary.probe('other'), 'alive');
  t.equal(await canary.probe(), 'gone');
  server.close();
  await once(server, 'close');
  t.equal(await canary.probe('other'), 'gone');
});

t.test('its port answers whoever is led there', async (t) => {
  const canary = new Canary('abc', 4);
  const { proxyPort } = await canary.open();
  const { connect } = await import('node:net');
  const socket = connect(proxyPort, '127.0.0.1').on('error', () => undefined);
  await once(socket, 'connect');
  socket.destroy();
  canary.close();
  canary.close();
  t.pass('and it can be closed twice');
});
