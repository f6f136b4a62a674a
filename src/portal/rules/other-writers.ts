/** Other processes that redirect the same traffic, with rules of another kind. */
import { KpngError } from '../../errors.ts';
import { Backoff, type BackoffPolicy } from '../../util/backoff.ts';
import { pause, systemClock, type Clock } from '../../util/clock.ts';
import { portalShared } from '../events.ts';
import type { Portal } from '../portal.ts';

/** Rules under our names written by another running process. */
export interface OtherWriter {
  /** `the nftables table inet kpng-userspace` */
  readonly what: string;
  readonly pids: readonly number[];
}

export interface OtherWritersOptions {
  readonly portal: Portal['kind'];
  /** Removes the rules of ended processes, and returns those of the others. Must not reject. */
  readonly check: () => Promise<readonly OtherWriter[]>;
  readonly signal: AbortSignal;
  readonly clock?: Clock;
  /** Default: `Math.random`. */
  readonly random?: () => number;
}

/** Each check lists rules, so checks become less frequent. */
const POLL_BACKOFF: BackoffPolicy = { initialMs: 2000, maxMs: 60_000, factor: 2, jitter: 0.2 };

/**
 * Checks until the other processes have ended and their rules are gone, and reports them on the channel
 * `portal:shared`. Resolves when there are none, or at the signal; never rejects.
 *
 * Two processes that serve the same services do no harm, and one may be about to take over, so this is only reported.
 */
export async function waitForOtherWriters(options: OtherWritersOptions): Promise<void> {
  const { portal, check, signal, clock = systemClock, random = Math.random } = options;
  const backoff = new Backoff(POLL_BACKOFF, random);
  let reported = '';
  for (;;) {
    const found = await check();
    const message = found.map(({ what, pids }) => `${writersText(pids)} ${what}`).join('; ');
    if (message !== reported) {
      portalShared.publish({ portal, error: message === '' ? undefined : sharedError(message) });
    }
    reported = message;
    if (found.length === 0 || signal.aborted) return;
    await pause(backoff.next(), clock, signal);
    if (signal.aborted) return;
  }
}

function writersText(pids: readonly number[]): string {
  if (pids.length === 0) return 'another process writes';
  return pids.length === 1
    ? `process ${pids[0]} writes`
    : `the processes ${pids.join(' and ')} write`;
}

function sharedError(message: string): KpngError {
  return new KpngError(
    'KPNG_PORTAL_SHARED',
    `${message}, for the same traffic as this one; the kernel applies whichever rule comes ` +
      'first. Stop one of them; its rules are removed then',
  );
}
