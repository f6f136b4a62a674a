import { openSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import * as inherited from '../../src/util/inherited.ts';
import { listenerClosed, listenerFailed, listenerOpened } from '../../src/proxysocket/events.ts';
import type { EngineChange } from '../../src/proxysocket/spec.ts';
import { FakeHost, listenSpec, overlap } from '../support/fake-host.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';
import * as fc from 'fast-check';
import { holdsAsync } from '../support/property.ts';

const remove = (name: string) => ({ kind: 'remove', name }) as const;
const set = (...args: Parameters<typeof listenSpec>) =>
  ({ kind: 'set', spec: listenSpec(...args) }) as const;

/** What `look` finds in every turn of the event loop until some work is done. */
async function during(work: Promise<void>, look = () => 0): Promise<number[]> {
  const done = new AbortController();
  const finished = work.finally(() => done.abort());
  const seen: number[] = [];
  while (!done.signal.aborted) {
    await turn();
    seen.push(look());
  }
  await finished;
  return seen;
}

t.test('port 0: every listener has a port of its own, and keeps it', async (t) => {
  const host = new FakeHost();
  const any = (traffic: 'internal' | 'external') => ({ address: '0.0.0.0', port: 0, traffic });
  await host.set(listenSpec('a', [any('internal'), any('external'), any('external')]));
  const ports = host.states('a');
  t.equal(new Set(ports).size, 3);
  await host.set(listenSpec('b', [any('internal')]));
  await host.set(listenSpec('a', [any('external'), any('internal'), any('external')]));
  const [internal, external, other] = ports;
  t.same(host.states('a'), [external, internal, other]);
  await host.set(listenSpec('a', [any('external')]));
  t.same(host.states('a'), [external]);
});

t.test('failures have codes and do not stop the others', async (t) => {
  const host = new FakeHost();
  const failed = collect(t, listenerFailed);
  for (const code of ['EADDRNOTAVAIL', 'EADDRINUSE', 'EACCES', 'EPERM', 'EINVAL', 'EMFILE']) {
    host.tcp.errors.set(`10.0.0.${host.tcp.errors.size + 1}:80`, code);
  }
  const places = Array.from({ length: 7 }, (_, index) => `10.0.0.${index + 1}:80`);
  await host.set(listenSpec('ns/s:p', [...places, 'example.org:80', ':80']));
  t.same(host.states('ns/s:p'), [
    'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE EADDRNOTAVAIL',
    'KPNG_LISTEN_ADDRESS_IN_USE EADDRINUSE',
    'KPNG_LISTEN_PERMISSION EACCES',
    'KPNG_LISTEN_PERMISSION EPERM',
    'KPNG_LISTEN_FAILED EINVAL',
    'KPNG_LIMIT_REACHED EMFILE',
    '80',
    'KPNG_LISTEN_FAILED EINVAL',
    'KPNG_LISTEN_FAILED EINVAL',
  ]);
  t.equal(failed.length, 8);
  const message = 'cannot listen on 10.0.0.1:80/TCP for ns/s:p: EADDRNOTAVAIL';
  const byPlace = new Map(failed.map((each) => [each.listen.address, each]));
  t.match(byPlace.get('10.0.0.1'), { error: { message, servicePort: 'ns/s:p' }, retryInMs: 1000 });
});

t.test('a failed listener is retried with growing delays', async (t) => {
  const host = new FakeHost();
  const failed = collect(t, listenerFailed);
  const opened = collect(t, listenerOpened);
  host.tcp.errors.set('10.0.0.1:80', 'EADDRNOTAVAIL');
  await host.set(listenSpec('a', ['10.0.0.1:80']));
  for (const [index, ms] of [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].entries()) {
    t.equal(failed.at(-1)?.retryInMs, ms);
    host.clock.advance(ms - 1);
    t.equal(host.tcp.attempts, index + 1);
    host.clock.advance(1);
    await until(() => failed.length === index + 2);
  }
  host.tcp.errors.clear();
  host.clock.advance(30_000);
  await until(() => opened.length === 1);
  t.same(host.states('a'), ['80']);
  t.equal(host.clock.pending, 0, 'nothing is planned any more');
});

t.test('a failed address is tried at once for a new service port, and not after it', async (t) => {
  const host = new FakeHost();
  host.tcp.errors.set('10.0.0.1:80', 'EADDRNOTAVAIL');
  await host.set(listenSpec('a', ['10.0.0.1:80']));
  await host.apply([remove('a'), set('b', ['10.0.0.1:80'])]);
  t.equal(host.tcp.attempts, 2);
  await host.apply([remove('b')]);
  host.clock.advance(60_000);
  t.equal(host.tcp.attempts, 2);
});

t.test('listeners are opened and retried in bundles, so that relays have their turn', async (t) => {
  const host = new FakeHost();
  const places = Array.from({ length: 2000 }, (_, i) => `10.2.${i >> 8}.${i & 255}:80`);
  for (const place of places) host.tcp.errors.set(place, 'EADDRNOTAVAIL');
  const { length: first } = await during(host.set(listenSpec('a', places)));
  t.ok(first >= 10, `${first} turns of the loop`);
  t.equal(host.clock.pending, 1, 'one timer for all');
  host.tcp.errors.clear();
  host.clock.advance(1000);
  const { length: next } = await during(until(() => host.tcp.size === 2000));
  t.ok(next >= 10, `${next} turns of the loop`);
});

t.test('shared sockets close first: no one knows any more whose their clients are', async (t) => {
  const host = new FakeHost({ kind: 'linux' });
  const places = Array.from({ length: 300 }, (_, index) => `127.0.0.1:${1000 + index}`);
  const shared = { address: '127.0.0.1', port: 0, traffic: 'internal', transparent: [] } as const;
  await host.set(listenSpec('a', places), listenSpec('all', [shared]));
  t.equal(host.tcp.size, 301);
  await host.close();
  t.equal(host.tcp.log[301], '-shared');
  t.equal(host.tcp.size, 0);
});

const MANY = 2000;
/** Service ports that may be noted before other work of the event loop has its turn. */
const AT_ONCE = 256;

function sets(count: number): EngineChange[] {
  return Array.from({ length: count }, (_, index) => {
    const place = `10.0.${index >> 8}.${index & 255}:80`;
    return { kind: 'set', spec: listenSpec(`s${index}`, [place]) };
  });
}

t.test('a large first state is noted in several turns of the event loop', async (t) => {
  const host = new FakeHost();
  const sizes = await during(host.apply(sets(MANY)), () => host.snapshot().length);
  t.equal(sizes.at(-1), MANY);
  const steps = sizes.map((size, index) => size - (sizes[index - 1] ?? 0));
  t.ok(Math.max(...steps) <= AT_ONCE, `steps of ${Math.max(...steps)}`);
  t.equal(host.tcp.size, MANY);
});

t.test('a batch with a removal is recorded at once, so its address is handed over', async (t) => {
  const host = new FakeHost();
  await host.apply([{ kind: 'set', spec: listenSpec('old', ['10.9.9.9:80']) }]);
  host.tcp.log.length = 0;
  const moved: EngineChange = { kind: 'set', spec: listenSpec('new', ['10.9.9.9:80']) };
  const changes = [{ kind: 'remove', name: 'old' } as const, ...sets(MANY), moved];
  const [closed, opened] = [collect(t, listenerClosed), collect(t, listenerOpened)];
  const sizes = await during(host.apply(changes), () => host.snapshot().length);
  t.equal(sizes[0], MANY + 1, 'in the first turn');
  t.match(closed, [{ servicePort: 'old' }]);
  const found = opened.find(({ servicePort }) => servicePort === 'new');
  t.equal(found?.listen.address, '10.9.9.9');
  t.notMatch(host.tcp.log.join(), /10\.9\.9\.9:80/, 'neither closed nor opened');
});

t.test('an engine that is destroyed meanwhile opens nothing', async (t) => {
  const host = new FakeHost();
  const applied = host.apply(sets(MANY));
  await turn();
  await host.destroy();
  await applied;
  t.equal(host.tcp.size, 0);
  t.same(host.snapshot(), []);
});

t.test('a listener that is being opened when the engine is destroyed closes', async (t) => {
  const host = new FakeHost();
  const listen = host.tcp.listen.bind(host.tcp);
  let destroyed: Promise<void> | undefined;
  host.tcp.listen = (spec, owner) => {
    destroyed ??= host.destroy();
    return listen(spec, owner);
  };
  await host.set(listenSpec('a', ['10.0.0.1:80']));
  await destroyed;
  t.same([host.tcp.size, host.tcp.attempts], [0, 1]);
});

function socket(port: number, protocol: 'TCP' | 'UDP' = 'TCP'): inherited.InheritedSocket {
  return { protocol, address: '10.0.0.1', port, fd: openSync('/dev/null', 'r') };
}

t.afterEach(() => inherited.closeInherited());

t.test('a socket is taken once, by its address, and a port by the key of its slot', async (t) => {
  const [tcp, next, udp] = [socket(80), socket(80), socket(80, 'UDP')];
  const key = 'TCP 0.0.0.0 0 d/web:http internal 0';
  inherited.keepInherited([tcp, next, udp], [{ key, port: 40_123 }]);
  t.equal(inherited.inheritedPort(key), 40_123);
  t.equal(inherited.takeInherited('TCP', '10.0.0.2', 80), undefined);
  const takes = () => inherited.takeInherited('TCP', '10.0.0.1', 80);
  t.same([takes(), takes(), takes()], [tcp.fd, next.fd, undefined], 'in order');
  t.equal(inherited.takeInherited('UDP', '10.0.0.1', 80), udp.fd);
});

t.test('one worker has all sockets of an address, until it closes', async (t) => {
  inherited.keepInherited([socket(80), socket(80), socket(80)], []);
  const host = new FakeHost({ descriptors: 4 });
  host.tcp.errors.set('10.0.0.9:80', 'EADDRNOTAVAIL');
  await host.set(listenSpec('failed', ['10.0.0.9:80']));
  await host.set(listenSpec('a', ['10.0.0.1:80']));
  await host.set(listenSpec('b', ['10.0.0.2:80']));
  t.equal(host.tcp.size, 3);
  t.same(host.states('b'), ['KPNG_LIMIT_REACHED EMFILE'], 'each takes descriptors');
  await host.set(listenSpec('a', []));
  t.equal(host.tcp.size, 1);
  t.same(host.states('b'), ['80']);
});

const NAMES = ['a', 'b', 'c', 'd'];
const PLACES = ['127.0.0.1:80', '127.0.0.2:80', '0.0.0.0:80', '127.0.0.1:81', '::1:80', ':::80'];

/** Who is to have which address; null: no one any more. */
const batches = fc.array(
  fc.array(fc.tuple(fc.constantFrom(...PLACES), fc.constantFrom(...NAMES, null)), {
    minLength: 1,
    maxLength: 6,
  }),
  { maxLength: 12 },
);

const at = (place: string): [address: string, port: string] => {
  const colon = place.lastIndexOf(':');
  return [place.slice(0, colon), place.slice(colon + 1)];
};

/** Whether only one of two different addresses can be bound. */
function collide(one: string, other: string): boolean {
  const [[a, port], [b, otherPort]] = [at(one), at(other)];
  return port === otherPort && a !== b && overlap(a, b);
}

t.test('after any batches, the right listeners are open, and none closed needlessly', async (t) => {
  const property = fc.asyncProperty(batches, async (sequence) => {
    const host = new FakeHost();
    const wanted = new Map<string, string>();
    for (const batch of sequence) {
      const before = new Map(wanted);
      for (const [place, name] of batch) {
        if (name === null) wanted.delete(place);
        else wanted.set(place, name);
      }
      // One change for each service port that it is about, as the proxier makes them.
      const names = batch.flatMap(([place, name]) => [name, before.get(place)]);
      const changes = Array.from(
        new Set(names.filter((name) => typeof name === 'string')),
        (name) => {
          const places = [...wanted].flatMap(([place, owner]) => (owner === name ? [place] : []));
          return places.length === 0
            ? ({ kind: 'remove', name } as const)
            : ({ kind: 'set', spec: listenSpec(name, places) } as const);
        },
      );
      const logged = host.tcp.log.length;
      await host.apply(changes);

      const closed = host.tcp.log.slice(logged).filter((line) => line.startsWith('-'));
      for (const line of closed) {
        const place = line.slice(1);
        if (before.has(place) && wanted.has(place)) throw new Error(`${line} in vain`);
      }
      const listening = new Map<string, string>();
      for (const { name, listeners } of host.snapshot()) {
        for (const { state, listen } of listeners)
          if (state === 'listening') listening.set(`${listen.address}:${listen.port}`, name);
      }
      if (listening.size !== host.tcp.size) throw new Error('a listener is no one’s');
      for (const place of PLACES) {
        const [name, holder] = [wanted.get(place), listening.get(place)];
        if (holder !== undefined && name !== holder) throw new Error(`${place}: ${holder}`);
        const inTheWay = [...listening.keys()].some((other) => collide(place, other));
        if (holder === undefined && name !== undefined && !inTheWay) {
          throw new Error(`${place} is free, but not open`);
        }
      }
      const found = new Set(host.snapshot().map(({ name }) => name));
      if (!isDeepStrictEqual(found, new Set(wanted.values()))) throw new Error([...found].join());
    }
  });
  await holdsAsync(t, property);
});
