import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import t, { type Test } from 'tap';
import { Canary, canaryAddress, findOwner, tryToReach } from '../../../src/portal/rules/canary.ts';
import { blackHole } from '../../support/tcp-black-hole.ts';
import { until } from '../../support/until.ts';

t.test('every owner has a place of its own on a loopback address', (t) => {
  const places = Array.from({ length: 200 }, (_, n) => canaryAddress(`owner${n}`, 4));
  t.equal(new Set(places.map(({ address, port }) => `${address}:${port}`)).size, 200);
  for (const { address, port } of places) {
    if (!/^127\.(12[89]|1[3-9]\d|2[0-4]\d|25[0-4])\.\d+\.\d+$/.test(address)) t.fail(address);
    if (port < 10_000 || port >= 30_000) t.fail(String(port));
  }
  t.strictSame(canaryAddress('a', 4), canaryAddress('a', 4));
  t.equal(canaryAddress('a', 6).address, '::1');
  t.end();
});

t.test('asks for a way to its port', async (t) => {
  const canary = new Canary('abc', 4);
  t.teardown(() => canary.close());
  const proxyPort = await canary.open();
  t.strictSame(canary.address, canaryAddress('abc', 4));
  t.ok(proxyPort > 0);
});

t.test('tells whether somebody answers at the place of an owner', async (t) => {
  const canary = new Canary('abc', 4);
  t.teardown(() => canary.close());
  t.equal(await canary.probe(), 'gone', 'without rules nobody does');
  // Somebody who listens there himself stands in for the rules; Linux has all of 127.0.0.0/8.
  if (process.platform !== 'linux') return;
  const { address, port } = canaryAddress('other', 4);
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

const onlyLinux = process.platform === 'linux' ? {} : { skip: 'only on linux' };

/** Somebody who does with each connection to the place of an owner as the rules would. */
async function standIn(t: Test, owner: string, handle: (socket: Socket) => void): Promise<void> {
  const { address, port } = canaryAddress(owner, 4);
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    handle(socket);
  });
  server.listen(port, address);
  await once(server, 'listening');
  t.teardown(() => server.close());
}

t.test('says which process has written the rules of an owner', onlyLinux, async (t) => {
  const canary = new Canary('mine', 4);
  t.teardown(() => canary.close());
  const proxyPort = await canary.open();
  await standIn(t, 'mine', (socket) => {
    const onwards = connect(proxyPort, '127.0.0.1').on('error', () => undefined);
    socket.pipe(onwards).pipe(socket);
  });
  t.strictSame(await findOwner('mine'), { pid: process.pid });
});

t.test('a process that does not say who it is lives all the same', onlyLinux, async (t) => {
  for (const [owner, words] of [
    ['mute', ''],
    ['strange', 'HTTP/1.1 400 Bad Request\n'],
    ['babbling', 'kpng-userspace '.repeat(1000)],
  ] as const) {
    await standIn(t, owner, (socket) => socket.resume().end(words));
    t.strictSame(await findOwner(owner), { pid: undefined }, owner);
  }
  await standIn(t, 'hanging', (socket) => socket.resume());
  t.strictSame(await findOwner('hanging'), { pid: undefined });
  t.equal(await findOwner('nobody'), undefined);
});

t.test('where nothing comes back, no socket is left that goes on trying', onlyLinux, async (t) => {
  const { address, port } = await blackHole(t);
  const open = (): number => readdirSync('/proc/self/fd').length;
  const before = open();
  t.equal(await tryToReach({ address, port }), 'silent');
  await until(() => open() <= before);
});

t.test('its port answers whoever is led there', async (t) => {
  const canary = new Canary('abc', 4);
  const proxyPort = await canary.open();
  const socket = connect(proxyPort, '127.0.0.1').on('error', () => undefined);
  await once(socket, 'connect');
  socket.destroy();
  canary.close();
  canary.close();
  t.pass('and it can be closed twice');
});
