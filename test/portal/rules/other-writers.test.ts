import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { portalShared, type PortalShared } from '../../../src/portal/events.ts';
import {
  canaryAddress,
  createCanary,
  findOwner,
  probeAddress,
} from '../../../src/portal/rules/canary.ts';
import { waitForOtherWriters, type OtherWriter } from '../../../src/portal/rules/other-writers.ts';
import { findUnacceptable } from '../../../src/portal/rules/rule-set.ts';
import { FakeClock } from '../../support/fake-clock.ts';
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

/** Looks that find what the test says, and what is reported meanwhile. */
function follow(t: Test, rivals: readonly OtherWriter[]) {
  const here = { rivals, looks: 0 };
  const told: (string | undefined)[] = [];
  const listen = ({ error }: PortalShared) =>
    told.push(error === undefined ? undefined : `${error.code} ${error.message}`);
  portalShared.subscribe(listen);
  t.teardown(() => portalShared.unsubscribe(listen));
  const clock = new FakeClock();
  const closing = new AbortController();
  const end = waitForOtherWriters({
    portal: 'nftables',
    check: async () => {
      here.looks += 1;
      return here.rivals;
    },
    signal: closing.signal,
    clock,
    random: () => 0.5,
  });
  const pass = async (ms: number): Promise<void> => {
    clock.advance(ms);
    await new Promise(setImmediate);
  };
  return { here, told, end, closing, pass };
}

const LEGACY: OtherWriter = { what: 'the chains KUBE-* of iptables-legacy', pids: [4711] };

t.test('names the process, once, and looks until it has ended', async (t) => {
  const { here, told, end, pass } = follow(t, [LEGACY]);
  await pass(0);
  t.match(told, [
    /^KPNG_PORTAL_SHARED process 4711 writes the chains KUBE-\* of iptables-legacy, for the same/,
  ]);
  await pass(2000);
  await pass(4000);
  t.equal(here.looks, 3);
  t.equal(told.length, 1, 'it is still the same one');
  here.rivals = [];
  await pass(8000);
  await end;
  t.same(told.slice(1), [undefined]);
});

t.test('ends at once on request', async (t) => {
  const { here, closing, end, pass } = follow(t, [LEGACY]);
  await pass(0);
  closing.abort();
  await end;
  await pass(100_000);
  t.equal(here.looks, 1);
});

t.test('every owner has a place of its own on a loopback address', (t) => {
  const places = Array.from({ length: 200 }, (_, n) => canaryAddress(`owner${n}`, 4));
  const texts = new Set(places.map(({ address, port }) => `${address} ${port}`));
  t.equal(texts.size, 200);
  for (const text of texts) {
    if (!/^127\.(?:12[89]|1[3-9]\d|2\d\d)\.\d+\.\d+ [12]\d{4}$/.test(text)) t.fail(text);
  }
  t.equal(canaryAddress('a', 6).address, '::1');
  t.end();
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
  const canary = createCanary('mine', [4], {
    reached: [(_family, _at, proxyPort) => [{ set: '', key: '', value: String(proxyPort) }]],
  });
  t.teardown(() => canary.close());
  const [element] = await canary.open();
  t.equal(await canary.probe('mine'), 'gone', 'without rules');
  await standIn(t, 'mine', (socket) => {
    const onwards = connect(Number(element?.value), '127.0.0.1').on('error', () => undefined);
    socket.pipe(onwards).pipe(socket);
  });
  t.equal(await canary.probe('mine'), 'alive');
  t.strictSame(await findOwner('mine'), { pid: process.pid });
  for (const process of [canary, createCanary('other', [4], { reached: [] })]) {
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
  t.equal(await probeAddress({ address, port }), 'silent');
  const canary = createCanary('mine', [4], { reached: [] });
  t.equal(await canary.probe('busy'), 'silent', 'rules of another process may still be there');
  await until(() => open() <= before);
});
