import type { Clock } from '../util/clock.ts';

/** Resolves after a time, or at once when the signal aborts. */
export async function pause(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const end = (): void => resolve();
  const timer = clock.setTimer(ms, end);
  signal.addEventListener('abort', end);
  await promise;
  signal.removeEventListener('abort', end);
  timer.cancel();
}
