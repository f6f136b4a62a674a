import type { Clock } from '../../util/clock.ts';
import { AUDIT_GOAL_MS, MAX_AUDIT_BACKOFF } from '../bounds.ts';
import { Repeater } from '../repeater.ts';

/**
 * Compares what is in the kernel with what was written, slowly: the canary notices within a second that
 * chains or tables are gone, but a single rule or element only matters to its own clients.
 *
 * `audit` compares and repairs; it resolves with whether anything was repaired. Where that does not help, it is
 * done more and more seldom. `intervalMs`: from the end of one comparison to the next, at the least.
 */
export function auditor(clock: Clock, intervalMs: number, audit: () => Promise<boolean>): Repeater {
  let repairs = 0;
  return new Repeater(clock, async () => {
    const begin = clock.now();
    // A tool that fails is reported where it writes.
    const repaired = await audit().catch(() => repairs > 0);
    repairs = repaired ? repairs + 1 : 0;
    const pause = intervalMs * Math.max(1, (clock.now() - begin) / AUDIT_GOAL_MS);
    return pause * Math.min(2 ** Math.max(0, repairs - 1), MAX_AUDIT_BACKOFF);
  });
}
