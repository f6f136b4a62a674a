import { setImmediate } from 'node:timers/promises';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';

export interface SnapshotSource {
  /** Every service port, or only those named. */
  snapshot(names?: ReadonlySet<string>): readonly ServicePortSnapshot[];
  /** All their names; absent or undefined: only a complete snapshot is available. */
  names?(): readonly string[] | undefined;
}

/** Service ports read in one turn of the event loop: a few milliseconds of work. */
export const PER_PART = 250;

/** Snapshots of all service ports, in parts; each part is taken when it is requested. */
export function* snapshotParts(
  source: SnapshotSource,
): Generator<readonly ServicePortSnapshot[], void, void> {
  const names = source.names?.();
  if (names === undefined) {
    yield source.snapshot();
    return;
  }
  for (let start = 0; start < names.length; start += PER_PART) {
    yield source.snapshot(new Set(names.slice(start, start + PER_PART)));
  }
}

/** Long work that yields so that others can run. */
export type Parts<Result> = Generator<void, Result, void>;

/**
 * Runs work with a turn of the event loop for each part, so that traffic does not have to wait. Rejects with the
 * signal's reason when that aborts.
 */
export async function runInParts<Result>(
  work: Parts<Result>,
  signal?: AbortSignal,
): Promise<Result> {
  for (;;) {
    signal?.throwIfAborted();
    const step = work.next();
    if (step.done === true) return step.value;
    await setImmediate();
  }
}
