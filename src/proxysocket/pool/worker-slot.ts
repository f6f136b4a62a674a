import { setTimeout as delay } from 'node:timers/promises';
import { Backoff, type BackoffPolicy } from '../../util/backoff.ts';
import type { PoolWorker } from './worker.ts';

/** A worker that dies sooner than this is replaced with a delay. Milliseconds. */
const YOUNG_MS = 10_000;

interface WorkerSlotOptions {
  readonly backoff: BackoffPolicy;
  /** Aborted when the pool ends: then no other worker is started. */
  readonly ending: AbortSignal;
  /** Starts a worker. */
  readonly start: () => PoolWorker;
  /** The worker has ended: resolves with whether to start another one. Must not reject. */
  readonly onOver: (worker: PoolWorker, error: Error | undefined) => Promise<boolean>;
  /** Another worker was started: messages sent now come before all others. */
  readonly onReplaced: (worker: PoolWorker) => void;
}

/** A slot for a worker: whenever one dies, another one replaces it. */
export class WorkerSlot {
  readonly #options: WorkerSlotOptions;
  #worker: PoolWorker;
  #next = Promise.withResolvers<void>();
  #isRetired = false;

  constructor(options: WorkerSlotOptions) {
    this.#options = options;
    this.#worker = options.start();
  }

  /** The current worker, or the last one. */
  get worker(): PoolWorker {
    return this.#worker;
  }

  /** The worker for commands, which runs them at once or when it has started; undefined: there will be none. */
  async current(): Promise<PoolWorker | undefined> {
    while (this.#worker.isOver && !this.#isRetired) await this.#next.promise;
    return this.#isRetired ? undefined : this.#worker;
  }

  /** Replaces workers that die; call it once. Resolves when no other one will start. */
  async supervise(): Promise<void> {
    const { backoff, ending, onOver, onReplaced, start } = this.#options;
    const waits = new Backoff(backoff, Math.random);
    for (;;) {
      const since = performance.now();
      const worker = this.#worker;
      const error = await worker.over;
      if (!(await onOver(worker, error))) break;
      if (performance.now() - since >= YOUNG_MS) waits.reset();
      else await delay(waits.next(), undefined, { signal: ending }).catch(() => undefined);
      if (ending.aborted) break;
      this.#worker = start();
      onReplaced(this.#worker);
      this.#next.resolve();
      this.#next = Promise.withResolvers<void>();
    }
    this.#isRetired = true;
    this.#next.resolve();
  }
}

/** After this many crashes within this time, no other worker is started. Milliseconds. */
const MAX_CRASHES = 3;
const CRASH_WINDOW_MS = 60_000;

/** Counts the crashes of workers, to detect that restarting is useless. */
export class CrashBudget {
  readonly #at: number[] = [];
  #isSpent = false;

  /** A worker crashed or did not start. `now` in milliseconds. */
  add(now: number): void {
    this.#at.push(now);
    if (this.#at.length > MAX_CRASHES) this.#at.shift();
    const [first = now] = this.#at;
    if (this.#at.length === MAX_CRASHES && now - first <= CRASH_WINDOW_MS) this.#isSpent = true;
  }

  /** Whether crashes came too close together; stays true. */
  get isSpent(): boolean {
    return this.#isSpent;
  }
}
