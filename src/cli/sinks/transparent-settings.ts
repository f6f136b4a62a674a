import type { Log } from '../../observe/log.ts';
import { conflictingSettings } from '../../portal/nftables/conflicting-settings.ts';
import { pause, systemClock, type Clock } from '../../util/clock.ts';

/** How often the settings are read: they change when a module such as br_netfilter is loaded. Milliseconds. */
const INTERVAL_MS = 15_000;

/**
 * Logs which settings of the host keep packets from transparent sockets. Returns what does the same for those that change
 * later, until the signal.
 */
export function watchSettings(
  log: Log,
  find: () => readonly string[] = conflictingSettings,
  clock: Clock = systemClock,
): (signal: AbortSignal) => Promise<void> {
  let known: readonly string[] = [];
  const check = (): void => {
    const found = find();
    for (const reason of found) {
      if (known.includes(reason)) continue;
      log.warn('Some clients cannot reach services with --portal transparent', { reason });
    }
    known = found;
  };
  check();
  return async (signal) => {
    while (!signal.aborted) {
      await pause(INTERVAL_MS, clock, signal);
      if (!signal.aborted) check();
    }
  };
}
