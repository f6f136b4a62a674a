import { KpngError, messageOf } from '../errors.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import { sinkFailed, sinkRecovered } from './events.ts';
import type { LocalChange, LocalSink } from './local-view.ts';

export interface DelivererOptions {
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
  /** Waits between attempts that fail. Default: 1 s growing to 30 s. */
  readonly backoff?: BackoffPolicy | undefined;
  /** Called after each attempt that failed, with the error that `deliver` resolves with. */
  readonly onFailed?: ((error: KpngError) => void) | undefined;
}

/**
 * Delivers change sets to a sink, one at a time, without losing any.
 *
 * When the sink rejects, its keys are kept: they become part of the next change set, and if none comes they are
 * retried on their own, with growing delays.
 */
export class Deliverer {
  readonly #sink: LocalSink;
  readonly #options: DelivererOptions;
  readonly #backoff: Backoff;
  readonly #queue = new SerialQueue();
  /** The changes that the sink has not applied yet. */
  #undelivered: LocalChange | undefined;
  #retry: Timer | undefined;
  #failures = 0;
  #closed = false;

  constructor(sink: LocalSink, options: DelivererOptions = {}) {
    this.#sink = sink;
    this.#options = options;
    this.#backoff = new Backoff(options.backoff ?? DEFAULT_BACKOFF, options.random ?? Math.random);
  }

  /**
   * Calls `complete` when the sink is idle, and delivers what it returns, if anything. `complete` may therefore
   * change the view; it must not reject. Resolves when the sink has settled, with the error (code KPNG_SINK_FAILED)
   * if it failed. After `close` it does nothing.
   */
  deliver(
    complete: () => LocalChange | undefined | Promise<LocalChange | undefined>,
  ): Promise<KpngError | undefined> {
    return this.#queue.run(async () => {
      if (this.#closed) return undefined;
      const change = await complete();
      return change && this.#attempt(change);
    });
  }

  /** Stops retrying. Resolves when the sink is idle. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#retry?.cancel();
    await this.#queue.idle();
  }

  async #attempt({ view, changed }: LocalChange): Promise<KpngError | undefined> {
    this.#retry?.cancel();
    const keys = this.#undelivered ? new Set([...this.#undelivered.changed, ...changed]) : changed;
    const change = { view, changed: keys };
    try {
      await this.#sink.sync(change);
    } catch (cause) {
      return this.#failed(change, cause);
    }
    this.#undelivered = undefined;
    if (this.#failures > 0) sinkRecovered.publish({ failures: this.#failures });
    this.#failures = 0;
    this.#backoff.reset();
    return undefined;
  }

  #failed(undelivered: LocalChange, cause: unknown): KpngError {
    this.#undelivered = undelivered;
    this.#failures++;
    const retryInMs = this.#backoff.next();
    const reason = messageOf(cause);
    const count = undelivered.changed.size;
    const error = new KpngError(
      'KPNG_SINK_FAILED',
      `A change of ${count} service${count === 1 ? '' : 's'} failed: ${reason}`,
      { cause },
    );
    if (!this.#closed) {
      // Unless a change set includes it meanwhile.
      const again = (): unknown => this.deliver(() => this.#undelivered);
      this.#retry = (this.#options.clock ?? systemClock).setTimer(retryInMs, again);
    }
    this.#options.onFailed?.(error);
    sinkFailed.publish({ error, waiting: count, retryInMs });
    return error;
  }
}
