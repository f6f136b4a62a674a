import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { portalShared } from '../../../src/portal/events.ts';
import {
  canaryAddress,
  contact,
  createCanary,
  findOwner,
} from '../../../src/portal/rules/canary.ts';
import { waitForOtherWriters } from '../../../src/portal/rules/other-writers.ts';
import { findUnacceptable } from '../../../src/portal/rules/rule-set.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { listening } from '../../support/mailbox.ts';
import { blackHole, endpointAt } from '../../support/tcp-peers.ts';
import { until } from '../../support/until.ts';

t.test('finds the rejected ones', async (t) => {
  const names = Array.from({ length: 1000 }, (_, n) => `s${n}`);
  const find = async (bad: readonly string[], limit = 100) => {
    let trials = 0;
    const accepted = async (some: readonly string[]) => {
      trials += 1;
      return !some.some((name) => bad.includes(name));
    };
    const found = await findUnacceptable(names, accepted, limit);
    return { found: found?.toSorted(), trials };
  };
  t.strictSame((await find(['s7'])).found, ['s7']);
  t.strictSame((await find(['s0', 's500', 's999'])).found, ['s0', 's500', 's999']);
  t.ok((await find(['s7'])).trials < 25);
  t.strictSame((await find([])).found, []);
  const { found = [], trials } = await find(
    names.filter((_, n) => n % 2 === 0),
    50,
  );
  t.ok(trials <= 51, 'the effort is limited');
  t.ok(found.length >= 500 && found.length < 1000, 'and then more are left out than need be');
  t.equal(await findUnacceptable(names, async () => false, 10), undefined);
});

t.test('a tool that fails occasionally blames no service port', async (t) => {
  const names = Array.from({ length: 64 }, (_, n) => `s${n}`);
  let trials = 0;
  // Every second call fails, whatever it is asked.
  const accepted = async () => {
    trials += 1;
    return trials % 2 === 1;
  };
  t.strictSame(await findUnacceptable(names, accepted, 100), []);
});

t.test('names other processes once, and looks until they have ended, or on request', async (t) => {
  const rival = { what: 'the chains KUBE-* of iptables-legacy', pids: [4711] };
  for (const isAborted of [false, true]) {
    const told: (string | undefined)[] = [];
    listening(t, portalShared, ({ error }) => told.push(error && `${error.code} ${error.message}`));
    const clock = new FakeClock();
    const closing = new AbortController();
    let rivals = [rival];
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
    const message =
      'KPNG_PORTAL_SHARED process 4711 writes the chains KUBE-* of iptables-legacy, for';
    t.match(told, [message]);
    t.equal(told.length, 1, 'it is still the same one');
    if (isAborted) closing.abort();
    else rivals = [];
    clock.advance(8000);
    await end;
    t.equal(looks, isAborted ? 3 : 4);
    t.same(told.slice(1), isAborted ? [] : [undefined]);
  }
});

const onlyLinux = process.platform === 'linux' ? {} : { skip: 'only on linux' };

/** A server that does with each connection to the place of an owner as the rules would. */
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

t.test('if nothing answers, no socket is left', onlyLinux, async (t) => {
  const { address, port } = canaryAddress('busy', 4);
  await blackHole(t, endpointAt(port, address));
  const open = (): number => readdirSync('/proc/self/fd').length;
  const before = open();
  t.equal((await contact({ address, port }, false)).result, 'silent');
  const canary = createCanary('mine', [4], []);
  t.equal(await canary.probe('busy'), 'silent', 'rules of another process may still be there');
  await until(() => open() <= before);
});
