/** How long others wait while the metrics of many service ports are read. */
import t from 'tap';
import { Turns } from '../../bench/support/turns.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';

const SERVICE_PORTS = 10_000;
const TARGET_MS = 20;
/** Collecting garbage may fall into one of them. */
const ATTEMPTS = 4;

const old = typeof (process as { threadCpuUsage?: unknown }).threadCpuUsage !== 'function';

t.test(
  `a scrape of ${SERVICE_PORTS} busy service ports keeps the thread for less than ${TARGET_MS} ms`,
  { skip: old && 'this Node cannot tell how long a thread works' },
  async (t) => {
    const counters = { ...newCounters(), connections: 5, retries: 1, bytesIn: 123_456_789 };
    counters.connectSeconds.counts.fill(3);
    const byName = new Map<string, ServicePortSnapshot>();
    for (let n = 0; n < SERVICE_PORTS; n += 1) {
      const name = `team-${n % 50}/service-${n}:http`;
      byName.set(name, { name, protocol: 'TCP', listeners: [], endpoints: 2, counters });
    }
    const metrics = createMetrics({ version: '0' });
    t.teardown(() => metrics.close());
    metrics.observe({
      engine: 'node',
      portal: 'none',
      limits: DEFAULT_LIMITS,
      names: () => [...byName.keys()],
      // What an engine does to tell its counters costs about that.
      snapshot: (names = new Set()) =>
        [...names].flatMap((name) => structuredClone(byName.get(name)) ?? []),
      problems: () => [],
    });
    const turns = new Turns();
    t.teardown(() => turns.stop());
    const worked: number[] = [];
    for (let n = 0; n < ATTEMPTS; n += 1) {
      turns.reset();
      let bytes = 0;
      for await (const piece of metrics.render()) bytes += piece.length;
      await turns.one();
      t.ok(bytes > 10_000_000, `${bytes} bytes`);
      worked.push(Number(/at work for at most (\d+)/.exec(turns.longest())?.[1]));
    }
    t.ok(Math.min(...worked) < TARGET_MS, `at work for ${worked.join(', ')} ms`);
  },
);
