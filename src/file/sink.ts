import { KpngError, messageOf } from '../errors.ts';
import { sinkFailed, sinkRecovered } from '../store/events.ts';
import type { GlobalStore } from '../store/global-store.ts';
import type { Pin } from '../store/history.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import { writeAtomically } from '../util/atomic-file.ts';
import { stateText } from './write.ts';

export interface FileSinkOptions {
  readonly store: GlobalStore;
  readonly path: string;
  /** Whether to write what Go kpng cannot read. Default: no. */
  readonly extended?: boolean | undefined;
  readonly backoff?: BackoffPolicy | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
  /** Called after each complete write, with the revision that was written. */
  readonly onWritten?: ((revision: number) => void) | undefined;
}

/** Minimum interval between writes. Milliseconds. */
export const DEFAULT_INTERVAL_MS = 1000;

/**
 * Keeps a state file up to date with a store. After a change the whole file is rewritten atomically, at most once per
 * interval. Nothing is written before the state is synced. A failed write is retried with the state at that time.
 */
export class FileSink {
  readonly #options: FileSinkOptions;
  readonly #clock: Clock;
  readonly #backoff: Backoff;
  readonly #stopListening: () => void;
  #timer: Timer | undefined;
  #writing: Promise<void> | undefined;
  #written = 0;
  #writtenAt = -Infinity;
  #failures = 0;
  #closed = false;

  constructor(options: FileSinkOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#backoff = new Backoff(options.backoff ?? DEFAULT_BACKOFF, options.random ?? Math.random);
    this.#stopListening = options.store.onChange(() => this.#plan());
    this.#plan();
  }

  /** Resolves when the file is up to date or cannot be written. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return this.#writing;
    this.#closed = true;
    this.#stopListening();
    this.#timer?.cancel();
    this.#timer = undefined;
    await this.#writing;
    if (this.#isBehind()) {
      this.#writing = this.#write();
      await this.#writing;
    }
  }

  #isBehind(): boolean {
    const { store } = this.#options;
    return store.synced && store.revision > this.#written;
  }

  #plan(): void {
    if (this.#closed || this.#timer !== undefined || this.#writing !== undefined) return;
    if (!this.#isBehind()) return;
    this.#after(Math.max(0, this.#writtenAt + DEFAULT_INTERVAL_MS - this.#clock.now()));
  }

  #after(ms: number): void {
    this.#timer = this.#clock.setTimer(ms, () => {
      this.#timer = undefined;
      this.#writing = this.#write().finally(() => {
        this.#writing = undefined;
        this.#plan();
      });
    });
  }

  async #write(): Promise<void> {
    const { store, path, extended, onWritten } = this.#options;
    // Writing takes several turns, but must show a single moment.
    const pin: Pin = store.pin(() => pin.release());
    try {
      await writeAtomically(path, stateText(store, pin.revision, extended));
    } catch (cause) {
      this.#failed(path, cause);
      return;
    } finally {
      pin.release();
      this.#writtenAt = this.#clock.now();
    }
    this.#written = pin.revision;
    if (this.#failures > 0) sinkRecovered.publish({ failures: this.#failures });
    this.#failures = 0;
    this.#backoff.reset();
    onWritten?.(pin.revision);
  }

  #failed(path: string, cause: unknown): void {
    this.#failures++;
    const retryInMs = this.#backoff.next();
    if (!this.#closed) this.#after(retryInMs);
    const message = `The state could not be written to ${path}: ${messageOf(cause)}`;
    const error = new KpngError('KPNG_SINK_FAILED', message, { cause });
    sinkFailed.publish({ error, waiting: this.#options.store.serviceCount, retryInMs });
  }
}
