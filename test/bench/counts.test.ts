/**
 * What the engines do for one unit of work, as counts: turns of the event loop, system calls, memory of
 * JavaScript. A machine that is slow or busy does not change them, so a change here is one of the code.
 *
 * Each limit stands beside what was counted when it was set. Turns and calls are whole numbers for work
 * that comes one piece after the other, and have next to no reserve: one more call for each request is
 * what this test is for. Memory has a reserve of about two thirds.
 * Where a change makes something better for good, lower the limit; where one is worth its price, raise it
 * and say why in the commit.
 */
import t, { type Test } from 'tap';
import { CountedProxy, type Cost } from '../../bench/counts/measure.ts';
import { HAS_LINUX_ENGINE } from '../runner/check.ts';

type Limits = Partial<Cost>;
/** How many of each kind of work are measured together. */
const WORK = { requests: 2000, connections: 300, datagrams: 1500, bursts: 30, bulk: 48 } as const;
type Work = keyof typeof WORK;

/** At most, for one request, connection, datagram there and back, or MiB there and back. */
const NODE: Readonly<Record<Work, Limits>> = {
  // One turn, one read and one write for each way; 100 bytes.
  requests: { turns: 2.1, calls: 4.2, allocated: 180 },
  // Accept, connect, the request, its answer, the client's end, the endpoint's: 6; 9,100 bytes.
  connections: { turns: 7, calls: 7, allocated: 15_000 },
  // One turn for each way; 2,200 to 4,000 bytes before V8 has compiled all of it, 1,170 to 1,380 then.
  datagrams: { turns: 2.1, allocated: 3200 },
  // 64 that are there at once take 3 turns together; 1,340 bytes.
  bursts: { turns: 0.1, allocated: 2200 },
  // 11 to 19 calls. Reads of 64 KiB, which is what Node takes by itself, would be 64.
  bulk: { calls: 40, allocated: 40_000 },
};

const LINUX: Readonly<Record<Work, Limits>> = {
  // One wait, one read and one write for each way; 930 bytes, most of them for turning to Node's own loop.
  requests: { turns: 2.1, calls: 6.3, allocated: 1500 },
  // 6 to 7 turns, as events come together or not, and 24 calls; 8,500 bytes.
  connections: { turns: 8.5, calls: 27, allocated: 15_000 },
  // One wait, one receiving and one sending call for each way; 3,000 bytes.
  datagrams: { turns: 2.1, calls: 6.3, allocated: 5000 },
  // 64 of 8 clients: 2 turns, 21 calls; one by one they would be 256. 490 bytes.
  bursts: { turns: 0.15, calls: 0.5, allocated: 900 },
  // 36 to 52 calls, as the data comes: pipes take more of them than a buffer of ours does, and less time.
  bulk: { calls: 90, allocated: 64_000 },
};

/** How often it is measured until it is within its limit: memory of the first times is the compiler's. */
const ATTEMPTS = 20;

/** Checks the least of each figure that is asked for, of each kind of work. */
async function check(
  t: Test,
  engine: 'node' | 'linux',
  all: Readonly<Record<Work, Limits>>,
  figures: readonly (keyof Cost)[],
): Promise<void> {
  // To count calls takes memory itself, which matters for the linux engine.
  const proxy = await CountedProxy.start(engine, { calls: figures.includes('calls') });
  t.teardown(() => proxy.close());
  for (const work of Object.keys(WORK) as Work[]) {
    const best = { turns: Infinity, calls: Infinity, allocated: Infinity };
    const limited = figures.flatMap((figure) => {
      const limit = all[work][figure];
      return limit === undefined ? [] : [{ figure, limit }];
    });
    const isWithin = () => limited.every(({ figure, limit }) => best[figure] <= limit);
    for (let attempt = 0; attempt < ATTEMPTS && !isWithin(); attempt += 1) {
      const cost = await proxy[work](WORK[work]);
      for (const { figure } of limited) best[figure] = Math.min(best[figure], cost[figure]);
    }
    for (const { figure, limit } of limited) {
      const found = best[figure];
      t.ok(found <= limit, `${work}: ${found.toFixed(2)} of at most ${limit} ${figure}`);
    }
  }
}

const skip = process.platform !== 'linux' && 'only on linux';

t.test('the node engine stays within its counts', { skip }, (t) =>
  check(t, 'node', NODE, ['turns', 'calls', 'allocated']),
);
if (HAS_LINUX_ENGINE) {
  t.test('the linux engine stays within its counts', (t) =>
    check(t, 'linux', LINUX, ['turns', 'calls']),
  );
  t.test('the linux engine leaves almost nothing to the garbage collector', (t) =>
    check(t, 'linux', LINUX, ['allocated']),
  );
}
