import { setFlagsFromString } from 'node:v8';
import type { Engine } from '../proxysocket/engine.ts';
import { systemClock, type Clock } from '../util/clock.ts';
import { collectGarbage } from '../util/collect-garbage.ts';

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

/** V8's own number of calls after which it optimises a function fully. */
const CALLS = 3000;

/**
 * Has V8 optimise functions later, until `collectAfterFirst`: for 10,000 services, that takes more CPU than it saves.
 * Call it once the engine has passed its probes, which need optimised functions.
 */
export function optimizeLate(): void {
  setFlagsFromString(`--invocation-count-for-turbofan=${CALLS * 10}`);
}

/** By then, the clients waiting for the first state have it. Milliseconds. */
export const COLLECT_AFTER_MS = 5000;

/**
 * Call it once the first complete state is in place. Collects garbage some time later: a third of the heap is left over
 * from reading it, and V8 would not collect that before the heap has grown by as much again. Takes about a tenth of a
 * second for 100,000 endpoints.
 *
 * `engine`: of the data path, if there is one. Then the young generation may grow from now on, as connections need room
 * for new objects; nothing is collected while their clients would have to wait for this thread.
 */
export function collectAfterFirst(
  engine: Pick<Engine, 'kind'> | undefined,
  clock: Clock = systemClock,
): void {
  setFlagsFromString(`--invocation-count-for-turbofan=${CALLS}`);
  if (engine !== undefined) setFlagsFromString('--semi-space-growth-factor=2');
  clock.setTimer(COLLECT_AFTER_MS, () => {
    if (engine?.kind !== 'node') void collectGarbage().then(engine && release);
  });
}

/** Returns memory that the allocator keeps for later to the system: 10 MB with 10,000 services. */
async function release(): Promise<void> {
  const { releaseMemory } = await import('../proxysocket/linux/sys/library.ts');
  // Not with musl.
  await releaseMemory().catch(() => undefined);
}
