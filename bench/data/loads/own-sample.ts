/** For the clients of this project: counts after a warm-up, and prints a `Sample` when the time is over. */
import { answer } from '../../support/worker.ts';
import { cpuUse, since } from '../usage.ts';
import type { Sample } from './load.ts';

/** Before it counts, so that every client has its connection or session. Milliseconds. */
const WARM_UP = 200;
/** Latencies that are kept; later ones are counted only. */
const KEPT = 1 << 20;

export interface OwnMeter {
  /** One more was answered, after so many milliseconds. */
  done(ms: number): void;
  /** So much was done, that has no latency. */
  add(amount: number): void;
  /** One more was not. */
  failed(): void;
}

/** Begins at once. Ends the process when it has printed. */
export function printSample(seconds: number, pids: readonly number[]): OwnMeter {
  const latencies = new Float64Array(KEPT);
  let answered = 0;
  let total = 0;
  let lost = 0;
  setTimeout(() => {
    total = 0;
    answered = 0;
    lost = 0;
    const [begin, used] = [performance.now(), cpuUse(pids)];
    setTimeout(() => {
      const cpu = since(used, pids);
      const elapsed = (performance.now() - begin) / 1000;
      const sorted = latencies.subarray(0, Math.min(answered, KEPT)).sort();
      const at = (share: number): number =>
        Math.round(1000 * (sorted[Math.floor((sorted.length - 1) * share)] ?? 0));
      const sample: Sample = {
        total,
        rate: total / elapsed,
        cpu,
        ...(answered > 0 && {
          latency: { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) },
        }),
        lost: lost / Math.max(1, total + lost),
      };
      answer(sample);
      // The sockets would keep it alive.
      process.stdout.end(() => process.exit(0));
    }, seconds * 1000);
  }, WARM_UP);
  return {
    done(ms) {
      if (answered < KEPT) latencies[answered] = ms;
      answered += 1;
      total += 1;
    },
    add(amount) {
      total += amount;
    },
    failed() {
      lost += 1;
    },
  };
}
