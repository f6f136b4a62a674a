import type { Clock } from '../../util/clock.ts';
import { MAX_AUDIT_BACKOFF, type AuditPolicy } from '../bounds.ts';
import { Repeater } from '../repeater.ts';

/** Durations that are kept: one that took long may only have waited for other programs. */
const DURATIONS = 5;

/** So many repairs in a row are made without back-off, as another program may change the rules more than once. */
const QUICK_REPAIRS = 5;

/**
 * Compares what is in the kernel with what was written: the canary notices that chains or tables are gone, but a
 * single rule or element only matters to its own clients. `audit` compares and repairs; it resolves with whether
 * anything was repaired.
 */
export function auditor(
  clock: Clock,
  { intervalMs, goalMs, maxMs }: AuditPolicy,
  audit: () => Promise<boolean>,
): Repeater {
  const durations: number[] = [];
  let repairs = 0;
  return new Repeater(clock, async () => {
    const begin = clock.now();
    // A tool that fails is reported where it writes.
    const repaired = await audit().catch(() => repairs > 0);
    repairs = repaired ? repairs + 1 : 0;
    const took = clock.now() - begin;
    // A repair is not part of the cost.
    if (!repaired) durations.push(took);
    if (durations.length > DURATIONS) durations.shift();
    const cost = durations.length === 0 ? 0 : Math.min(...durations);
    const pause = Math.min(maxMs, intervalMs * Math.max(1, cost / goalMs));
    const backoff = Math.min(2 ** Math.max(0, repairs - QUICK_REPAIRS), MAX_AUDIT_BACKOFF);
    return backoff * (took < pause / 2 ? pause - took : pause);
  });
}
