import { type Clock, pause } from '../util/clock.ts';
import { type AuditPolicy, MAX_AUDIT_BACKOFF } from './bounds.ts';

/** Number of recent durations: a single long one may only have waited for other programs. Before, no pause grows. */
const DURATIONS = 5;

/** Repairs in a row without a delay, as another program may remove things repeatedly. */
const QUICK_REPAIRS = 5;

/** Minimum pause after a slow check, as a fraction of the interval. */
const REST_SHARE = 0.5;

/**
 * Repeats a check until the signal aborts, with back-off while that finds damage. The intervals of `policy` are from the start of one check to the start of the next.
 *
 * `check` resolves with whether there was damage, which it has repaired. It may reject, after reporting why.
 */
export async function audit(
  policy: AuditPolicy,
  check: () => Promise<boolean>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const { intervalMs, goalMs, maxMs } = policy;
  let durations: number[] = [];
  let repairs = 0;
  for (let wait = intervalMs; ;) {
    await pause(wait, clock, signal);
    if (signal.aborted) return;
    const begin = clock.now();
    // The check has reported why it failed.
    const isDamaged = await check().catch(() => true);
    repairs = isDamaged ? repairs + 1 : 0;
    durations = [...durations, clock.now() - begin].slice(-DURATIONS);
    const slowness = durations.length < DURATIONS ? 0 : Math.min(...durations) / goalMs;
    const rest = Math.min(maxMs, intervalMs * Math.max(1, slowness));
    const backoff = Math.min(2 ** Math.max(0, repairs - QUICK_REPAIRS), MAX_AUDIT_BACKOFF);
    wait = backoff * Math.max(rest - (clock.now() - begin), REST_SHARE * rest);
  }
}
