/** Other processes that redirect the same traffic, with rules of another kind. */
import { KpngError } from '../../errors.ts';
import { Backoff, type BackoffPolicy } from '../../util/backoff.ts';
import { pause, systemClock, type Clock } from '../../util/clock.ts';
import { portalShared } from '../events.ts';
import type { Portal } from '../portal.ts';

/** Each check lists rules, so checks become less frequent. */
const POLL_BACKOFF: BackoffPolicy = { initialMs: 2000, maxMs: 60_000, factor: 2, jitter: 0.2 };

/**
 * Checks until the other processes have ended and their rules are gone, and reports them on the channel
 * `portal:shared`. Resolves when there are none, or at the signal; never rejects. `check` removes the rules of ended
 * processes, and describes the others, see `writerText`; it must not reject.
 *
 * Two processes that serve the same services do no harm, and one may be about to take over, so this is only reported.
 */
export async function waitForOtherWriters(
  portal: Portal['kind'],
  check: () => Promise<readonly string[]>,
  signal: AbortSignal,
  clock: Clock = systemClock,
  random: () => number = Math.random,
): Promise<void> {
  const backoff = new Backoff(POLL_BACKOFF, random);
  let reported = '';
  while (!signal.aborted) {
    const found = await check();
    const writers = found.join('; ');
    if (writers !== reported) {
      const message =
        `${writers}, for the same traffic as this one; the kernel applies whichever rule comes ` +
        'first. Stop one of them; its rules are removed then';
      const error = writers === '' ? undefined : new KpngError('KPNG_PORTAL_SHARED', message);
      portalShared.publish({ portal, error });
    }
    reported = writers;
    if (found.length === 0) return;
    await pause(backoff.next(), clock, signal);
  }
}

/** `what`: rules under our names that others write, as `the nftables table inet kpng-userspace`. */
export function writerText(what: string, pids: readonly number[]): string {
  if (pids.length === 0) return `another process writes ${what}`;
  if (pids.length === 1) return `process ${pids[0]} writes ${what}`;
  return `the processes ${pids.join(' and ')} write ${what}`;
}
