import { setTimeout as delay } from 'node:timers/promises';
import { Backoff, type BackoffPolicy } from '../../util/backoff.ts';
import type { PoolWorker } from './worker.ts';

/** A worker that dies younger than this is not replaced at once. Milliseconds. */
const YOUNG_MS = 10_000;

export interface SeatOptions {
  readonly backoff: BackoffPolicy;
  /** Aborted when the pool ends: then no other worker is started. */
  readonly ending: AbortSignal;
  /** Starts a worker. */
  readonly start: () => PoolWorker;
  /** The worker is over: whether there is to be another one. Must not reject. */
  readonly onOver: (worker: PoolWorker, error: Error | undefined) => Promise<boolean>;
  /** Another worker was started: what it is sent now comes before everything else. */
  readonly onReplaced: (worker: PoolWorker) => void;
}

/** Where one worker after another sits: whenever one dies, another one takes its place. */
export class Seat {
  readonly #options: SeatOptions;
  #worker: PoolWorker;
  #next = Promise.withResolvers<void>();
  #isLeft = false;

  constructor(options: SeatOptions) {
    this.#options = options;
    this.#worker = options.start();
  }

  /** The present worker, or the last one. */
  get worker(): PoolWorker {
    return this.#worker;
  }

  /** The worker that is to carry out commands, at once or when it has been started; undefined: there will be none. */
  async present(): Promise<PoolWorker | undefined> {
    while (this.#worker.isOver && !this.#isLeft) await this.#next.promise;
    return this.#isLeft ? undefined : this.#worker;
  }

  /** Watches the worker from now on; to be called once. Resolves when there will be no other one. */
  async keep(): Promise<void> {
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
    this.#isLeft = true;
    this.#next.resolve();
  }
}
