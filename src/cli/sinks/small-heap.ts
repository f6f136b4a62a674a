import { setFlagsFromString } from 'node:v8';
import type { GlobalStore } from '../../store/global-store.ts';
import type { LocalSink } from '../../store/local-view.ts';
import { systemClock, type Clock } from '../../util/clock.ts';
import { collectGarbage } from '../../util/collect-garbage.ts';

/**
 * Keeps V8's young generation small. Reading a large state would grow it to 64 MB, which V8 never returns. A server
 * gains nothing from that: a change's garbage fits a few megabytes, at the same CPU cost by measurement.
 *
 * Node has no option for it that can be set at run time; V8 reads this flag whenever the space for new objects is
 * about to grow, and at no other time.
 */
export function keepHeapSmall(): void {
  setFlagsFromString('--semi-space-growth-factor=1');
}

/** By then, the clients waiting for the first state have it. Milliseconds. */
export const COLLECT_AFTER_MS = 5000;

/**
 * Undoes it once the sink has its first change set, as connections need room for new objects, and collects garbage some
 * time later, see `collectOnceSynced`. `mayPause`: whether no client has to wait for this thread then.
 */
export function smallUntilFirst(
  sink: LocalSink,
  mayPause: () => boolean,
  clock: Clock = systemClock,
): LocalSink {
  let isFirst = true;
  return {
    async sync(change) {
      try {
        await sink.sync(change);
      } finally {
        if (isFirst) {
          setFlagsFromString('--semi-space-growth-factor=2');
          clock.setTimer(COLLECT_AFTER_MS, () => {
            if (mayPause()) void collectGarbage().then(release);
          });
        }
        isFirst = false;
      }
    },
  };
}

/**
 * Collects garbage once, some time after the first complete state: a third of the heap is left over from reading it,
 * and V8 would not collect that before the heap has grown by as much again. Takes about a tenth of a second for
 * 100,000 endpoints.
 */
export function collectOnceSynced(store: GlobalStore, clock: Clock = systemClock): void {
  const end = store.onChange(() => {
    if (!store.synced) return;
    end();
    clock.setTimer(COLLECT_AFTER_MS, () => void collectGarbage());
  });
}

/** Returns memory that the allocator keeps for later to the system: 10 MB with 10,000 services. */
async function release(): Promise<void> {
  const { releaseMemory } = await import('../../proxysocket/linux/sys/library.ts');
  // Not with musl, nor without the linux engine.
  await releaseMemory().catch(() => undefined);
}
