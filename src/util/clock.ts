/** Node's maximum timer delay; a longer one would fire at once. Milliseconds. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Time and timers, injected so that tests decide when time passes. */
export interface Clock {
  /** Milliseconds from some fixed point; monotonic. */
  now(): number;
  /** Calls `callback` once after `ms`. The timer does not keep the process alive. */
  setTimer(ms: number, callback: () => void): Timer;
}

export interface Timer {
  cancel(): void;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  setTimer(ms, callback) {
    let immediate: NodeJS.Immediate | undefined;
    // Sockets are polled in between: after a pause of the event loop, what the timer limits may have arrived.
    const timeout = setTimeout(() => {
      immediate = setImmediate(callback);
    }, ms);
    timeout.unref();
    return {
      cancel() {
        clearTimeout(timeout);
        clearImmediate(immediate);
      },
    };
  },
};

/** Resolves after `ms`, or at once when the signal aborts. */
export async function pause(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = clock.setTimer(ms, () => resolve());
  const end = (): void => {
    timer.cancel();
    resolve();
  };
  signal.addEventListener('abort', end);
  await promise;
  signal.removeEventListener('abort', end);
}
