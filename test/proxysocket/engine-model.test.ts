import * as fc from 'fast-check';
import t from 'tap';
import type { EngineChange } from '../../src/proxysocket/spec.ts';
import { overlap } from '../support/fake-engine.ts';
import { FakeHost, listenSpec } from '../support/fake-host.ts';
import { holdsAsync } from '../support/property.ts';

const NAMES = ['a', 'b', 'c', 'd'];
const PLACES = ['127.0.0.1:80', '127.0.0.2:80', '0.0.0.0:80', '127.0.0.1:81', '::1:80', ':::80'];

const batches = fc.array(
  fc.array(
    fc.record({
      name: fc.constantFrom(...NAMES),
      places: fc.option(fc.uniqueArray(fc.constantFrom(...PLACES), { maxLength: 4 })),
    }),
    { minLength: 1, maxLength: 4 },
  ),
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
    const wanted = new Map<string, readonly string[]>();
    const wantedBy = (place: string): string[] =>
      [...wanted].flatMap(([name, places]) => (places.includes(place) ? [name] : []));

    for (const batch of sequence) {
      const before = new Set(PLACES.filter((place) => wantedBy(place).length > 0));
      // One change for each service port, as the proxier makes them.
      const changes = new Map(batch.map(({ name, places }) => [name, places]));
      for (const [name, places] of changes) {
        if (places === null) wanted.delete(name);
        else wanted.set(name, places);
      }
      const logged = host.tcp.log.length;
      await host.engine.apply(
        [...changes].map(([name, places]): EngineChange =>
          places === null
            ? { kind: 'remove', name }
            : { kind: 'set', spec: listenSpec(name, places) },
        ),
      );

      const closed = host.tcp.log.slice(logged).filter((line) => line.startsWith('-'));
      for (const line of closed) {
        const place = line.slice(1);
        if (before.has(place) && wantedBy(place).length > 0) throw new Error(`${line} in vain`);
      }
      const listening = new Map<string, string>();
      for (const { name, listeners } of host.engine.snapshot()) {
        for (const { state, listen } of listeners)
          if (state === 'listening') listening.set(`${listen.address}:${listen.port}`, name);
      }
      if (listening.size !== host.tcp.size) throw new Error('a listener is no one’s');
      for (const place of PLACES) {
        const names = wantedBy(place);
        const holder = listening.get(place);
        if (holder !== undefined && !names.includes(holder)) throw new Error(`${place}: ${holder}`);
        const inTheWay = [...listening.keys()].some((other) => collide(place, other));
        if (holder === undefined && names.length > 0 && !inTheWay) {
          throw new Error(`${place} is free, but not open`);
        }
      }
      const names = host.engine.snapshot().map(({ name }) => name);
      if (names.sort().join() !== [...wanted.keys()].sort().join()) throw new Error(names.join());
    }
  });
  await holdsAsync(t, property);
});
