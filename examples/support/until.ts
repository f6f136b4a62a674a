import { setTimeout as wait } from 'node:timers/promises';

interface UntilOptions {
  /** Timeout in milliseconds. Default: a minute. Decides only how long a failure takes. */
  readonly within?: number;
  /** Milliseconds between two looks. Default: 20. */
  readonly every?: number;
}

/**
 * Looks again and again until `look` answers something else than undefined, and returns that.
 * Rejects with `what` once the time is over; errors of `look` count as "not yet" until then.
 */
export async function until<T>(
  what: string,
  look: () => T | undefined | Promise<T | undefined>,
  options: UntilOptions = {},
): Promise<T> {
  const { within = 60_000, every = 20 } = options;
  const end = performance.now() + within;
  let last: unknown;
  for (;;) {
    try {
      const found = await look();
      if (found !== undefined) return found;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (performance.now() > end) {
      throw new Error(`${what}: not within ${within / 1000} s`, { cause: last });
    }
    await wait(every);
  }
}
