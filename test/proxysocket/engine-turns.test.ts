import { setImmediate } from 'node:timers/promises';
import t from 'tap';
import type { EngineChange } from '../../src/proxysocket/spec.ts';
import { FakeHost, listenSpec } from '../support/fake-host.ts';

const MANY = 2000;
/** Service ports that may be noted before other work of the event loop has its turn. */
const AT_ONCE = 256;

/** What `look` finds in every turn of the event loop until a batch is done. */
async function during(
  host: FakeHost,
  changes: readonly EngineChange[],
  look: () => number,
): Promise<number[]> {
  const done = new AbortController();
  const applied = host.engine.apply(changes).finally(() => done.abort());
  const seen: number[] = [];
  while (!done.signal.aborted) {
    await setImmediate();
    seen.push(look());
  }
  await applied;
  return seen;
}

function sets(count: number): EngineChange[] {
  return Array.from({ length: count }, (_, index) => {
    const place = `10.0.${index >> 8}.${index & 255}:80`;
    return { kind: 'set', spec: listenSpec(`s${index}`, [place]) };
  });
}

t.test('a large first state is noted in several turns of the event loop', async (t) => {
  const host = new FakeHost();
  const sizes = await during(host, sets(MANY), () => host.engine.snapshot().length);
  t.equal(sizes.at(-1), MANY);
  const steps = sizes.map((size, index) => size - (sizes[index - 1] ?? 0));
  t.ok(Math.max(...steps) <= AT_ONCE, `steps of ${Math.max(...steps)}`);
  t.equal(host.tcp.size, MANY);
});

t.test('a batch with a removal is recorded at once, so its address is handed over', async (t) => {
  const host = new FakeHost();
  await host.engine.apply([{ kind: 'set', spec: listenSpec('old', ['10.9.9.9:80']) }]);
  host.tcp.log.length = 0;
  const moved: EngineChange = { kind: 'set', spec: listenSpec('new', ['10.9.9.9:80']) };
  const changes = [{ kind: 'remove', name: 'old' } as const, ...sets(MANY), moved];
  const sizes = await during(host, changes, () => host.engine.snapshot().length);
  t.equal(sizes[0], MANY + 1, 'in the first turn');
  t.notOk(
    host.tcp.log.some((line) => line.endsWith('10.9.9.9:80')),
    'neither closed nor opened',
  );
});

t.test('an engine that is destroyed meanwhile opens nothing', async (t) => {
  const host = new FakeHost();
  const applied = host.engine.apply(sets(MANY));
  await setImmediate();
  await host.engine.destroy();
  await applied;
  t.equal(host.tcp.size, 0);
  t.same(host.engine.snapshot(), []);
});
