import type { Clock } from '../../util/clock.ts';
import { MAX_AUDIT_BACKOFF, type AuditPolicy } from '../bounds.ts';
import { Repeater } from '../repeater.ts';

/** Durations that are kept: one that took long may only have waited for other programs. */
const DURATIONS = 5;

/** So many repairs in a row are made without back-off, as another program may change the rules more than once. */
const QUICK_REPAIRS = 5;

/**
 * Compares what is in the kernel with what was written: the canary notices that chains or tables are gone, but a
 * single rule or element only matters to its own clients. `compare` resolves with what repairs the differences;
 * undefined: there are none.
 */
export function auditor(
  clock: Clock,
  { intervalMs, goalMs, maxMs }: AuditPolicy,
  compare: () => Promise<(() => Promise<void>) | undefined>,
): Repeater {
  const durations: number[] = [];
  let repairs = 0;
  return new Repeater(clock, async () => {
    const begin = clock.now();
    let took = 0;
    try {
      const repair = await compare();
      took = clock.now() - begin;
      repairs = repair === undefined ? 0 : repairs + 1;
      await repair?.();
    } catch {
      // A tool that fails is reported where it writes.
      took ||= clock.now() - begin;
    }
    durations.push(took);
    if (durations.length > DURATIONS) durations.shift();
    const pause = Math.min(maxMs, intervalMs * Math.max(1, Math.min(...durations) / goalMs));
    const backoff = Math.min(2 ** Math.max(0, repairs - QUICK_REPAIRS), MAX_AUDIT_BACKOFF);
    return backoff * (took < pause / 2 ? pause - took : pause);
  });
}
