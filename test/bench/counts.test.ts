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
type Work = 'requests' | 'connections' | 'datagrams' | 'bursts' | 'bulk';

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

/** The least of each figure, as soon as all are within their limits. */
async function least(measure: () => Promise<Cost>, limits: Limits): Promise<Cost> {
  let best = await measure();
  const figures = ['turns', 'calls', 'allocated'] as const;
  for (let again = 1; again < ATTEMPTS; again += 1) {
    if (figures.every((figure) => best[figure] <= (limits[figure] ?? Infinity))) break;
    const next = await measure();
    best = {
      turns: Math.min(best.turns, next.turns),
      calls: Math.min(best.calls, next.calls),
      allocated: Math.min(best.allocated, next.allocated),
    };
  }
  return best;
}

function measureAll(proxy: CountedProxy): Readonly<Record<Work, () => Promise<Cost>>> {
  return {
    requests: () => proxy.requests(2000),
    connections: () => proxy.connections(300),
    datagrams: () => proxy.datagrams(1500),
    bursts: () => proxy.bursts(30),
    bulk: () => proxy.bulk(48),
  };
}

/** Checks those figures of each kind of work that are asked for. */
async function check(
  t: Test,
  proxy: CountedProxy,
  all: Readonly<Record<Work, Limits>>,
  figures: readonly (keyof Cost)[],
): Promise<void> {
  for (const [work, measure] of Object.entries(measureAll(proxy))) {
    const limits = Object.entries(all[work as Work]).filter(([figure]) =>
      figures.some((asked) => asked === figure),
    ) as [keyof Cost, number][];
    const cost = await least(measure, Object.fromEntries(limits));
    for (const [figure, limit] of limits) {
      const text = `${work}: ${cost[figure].toFixed(2)} of at most ${limit} ${figure}`;
      t.ok(cost[figure] <= limit, text);
    }
  }
}

const skip = process.platform === 'linux' ? {} : { skip: 'only on linux' };

t.test('the node engine stays within its counts', skip, async (t) => {
  const proxy = await CountedProxy.start('node', { calls: true });
  t.teardown(() => proxy.close());
  await check(t, proxy, NODE, ['turns', 'calls', 'allocated']);
});

if (HAS_LINUX_ENGINE) {
  t.test('the linux engine stays within its counts', async (t) => {
    const proxy = await CountedProxy.start('linux', { calls: true });
    t.teardown(() => proxy.close());
    await check(t, proxy, LINUX, ['turns', 'calls']);
  });

  // To count calls takes memory itself.
  t.test('the linux engine leaves almost nothing to the garbage collector', async (t) => {
    const proxy = await CountedProxy.start('linux', { calls: false });
    t.teardown(() => proxy.close());
    await check(t, proxy, LINUX, ['allocated']);
  });
}
