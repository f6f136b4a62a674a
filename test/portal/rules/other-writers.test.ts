import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { CANARY_TIMEOUT_MS } from '../../../src/portal/bounds.ts';
import { portalShared } from '../../../src/portal/events.ts';
import {
  canaryAddress,
  contact,
  createCanary,
  findOwner,
  openServer,
  portOf,
} from '../../../src/portal/rules/canary.ts';
import { waitForOtherWriters, writerText } from '../../../src/portal/rules/other-writers.ts';
import { findUnacceptable } from '../../../src/portal/rules/rule-set.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { listening } from '../../support/sockets.ts';
import { blackHole, endpointAt } from '../../support/tcp-peers.ts';
import { until } from '../../support/until.ts';

t.test('finds the rejected ones, with limited effort', async (t) => {
  const names = Array.from({ length: 1000 }, (_, n) => `s${n}`);
  for (const [bad, maxTrials] of [
    [[], 1],
    [['s7'], 24],
    [['s0', 's500', 's999'], 99],
    [names.filter((_, n) => n % 2 === 0), 101],
  ] as const) {
    let trials = -1;
    const accepted = async (some: readonly string[]) => {
      trials += 1;
      return !some.some((name) => (bad as readonly string[]).includes(name));
    };
    const found = (await findUnacceptable(names, accepted)) ?? [];
    t.ok(trials <= maxTrials, `${trials}`);
    t.ok(bad.every((name) => found.includes(name)));
    if (maxTrials < 100) t.equal(found.length, bad.length);
    else t.ok(found.length < 1000, 'more are left out than need be');
  }
  t.equal(await findUnacceptable(names, async () => false), undefined);
  // A tool that fails every second time, whatever it is asked, blames no service port.
  let count = 0;
  t.strictSame(await findUnacceptable(names, async () => count++ % 2 === 0), []);
});

t.test('names other processes once, and looks until they have ended, or on request', async (t) => {
  for (const isAborted of [false, true]) {
    const told: (string | undefined)[] = [];
    listening(t, portalShared, ({ error }) => told.push(error && `${error.code} ${error.message}`));
    const clock = new FakeClock();
    const closing = new AbortController();
    let rivals = [writerText('the chains KUBE-* of iptables-legacy', [4711])];
    let looks = 0;
    const check = async () => {
      looks += 1;
      return rivals;
    };
    const end = waitForOtherWriters('nftables', check, closing.signal, clock, () => 0.5);
    for (const ms of [0, 2000, 4000]) {
      clock.advance(ms);
      await new Promise(setImmediate);
    }
    t.equal(looks, 3);
    t.match(
      told.splice(0).join(),
      /^KPNG_PORTAL_SHARED process 4711 writes the chains KUBE-[^,]*,/,
    );
    if (isAborted) closing.abort();
    else rivals = [];
    clock.advance(8000);
    await end;
    t.equal(looks, isAborted ? 3 : 4);
    t.same(told, isAborted ? [] : [undefined]);
  }
});

const onlyLinux = process.platform === 'linux' ? {} : { skip: 'only on linux' };

/** A server that does with each connection to the place of an owner as the rules would. */
async function standIn(t: Test, owner: string, handle: (socket: Socket) => void): Promise<void> {
  const { host: address, port } = canaryAddress(owner, 4);
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    handle(socket);
  });
  server.listen(port, address);
  await once(server, 'listening');
  t.teardown(() => server.close());
}

t.test('returns the process that wrote an owner’s rules', onlyLinux, async (t) => {
  // In IPv4; its only element has its proxy port.
  const canary = createCanary(
    'mine',
    [4],
    [(_family, _at, proxyPort) => [{ set: '', key: '', value: String(proxyPort) }]],
  );
  t.teardown(() => canary.close());
  const [element] = await canary.open();
  t.equal(await canary.probe('mine'), 'gone', 'without rules');
  await standIn(t, 'mine', (socket) => {
    const onwards = connect(Number(element?.value), '127.0.0.1').on('error', () => undefined);
    socket.pipe(onwards).pipe(socket);
  });
  t.equal(await canary.probe('mine'), 'alive');
  t.strictSame(await findOwner('mine'), { pid: process.pid });
  for (const process of [canary, createCanary('other', [4], [])]) {
    t.equal(await process.probe('mine'), 'alive');
    t.equal(await process.probe('gone'), 'gone');
  }
});

t.test('a process that does not identify itself counts as alive', onlyLinux, async (t) => {
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

t.test('a connection that is there does not time out when the event loop pauses', async (t) => {
  const server = await openServer('127.0.0.1', () => 'hello\n');
  t.teardown(() => server.close());
  const at = { host: '127.0.0.1', port: portOf(server) };
  for (const listens of [false, true]) {
    // Once the connection is with the kernel.
    setImmediate(() => {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, CANARY_TIMEOUT_MS + 50);
    });
    t.equal((await contact(at, listens)).result, 'alive');
  }
});

t.test('if nothing answers, no socket is left', onlyLinux, async (t) => {
  const { host: address, port } = canaryAddress('busy', 4);
  await blackHole(t, endpointAt(port, address));
  const open = (): number => readdirSync('/proc/self/fd').length;
  const before = open();
  t.equal((await contact({ host: address, port }, false)).result, 'silent');
  const canary = createCanary('mine', [4], []);
  t.equal(await canary.probe('busy'), 'silent', 'rules of another process may still be there');
  await until(() => open() <= before);
});
