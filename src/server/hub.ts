import type { status } from '@grpc/grpc-js';
import type { KpngError } from '../errors.ts';
import { operationsSent } from './events.ts';

/** Yields to other work after this long. Milliseconds. */
const SLICE_MS = 10;

/** A Watch call. */
export interface Watcher {
  /** Answers the waiting request if there is something to send. */
  poll(): void;
  /** Ends the call with a status other than OK. */
  end(code: status, error: KpngError): void;
}

/** All Watch calls; polls them when there may be something new. */
export class Hub {
  readonly #watches = new Set<Watcher>();
  /** Watches not polled since the last change. */
  #round: Iterator<Watcher> | undefined;
  #changedMeanwhile = false;
  /** Operations sent but not published yet. */
  #sent = 0;

  get size(): number {
    return this.#watches.size;
  }

  add(watch: Watcher): void {
    this.#watches.add(watch);
  }

  remove(watch: Watcher): void {
    this.#watches.delete(watch);
  }

  all(): Iterable<Watcher> {
    return this.#watches;
  }

  /** A watch has sent this many operations. They are published together, at the end of the turn. */
  sent(operations: number): void {
    if (!operationsSent.hasSubscribers) return;
    if (this.#sent === 0) setImmediate(() => this.#publish());
    this.#sent += operations;
  }

  #publish(): void {
    operationsSent.publish({ operations: this.#sent });
    this.#sent = 0;
  }

  /** Polls all watches soon; repeated calls until then have no further effect. */
  changed(): void {
    if (this.#round !== undefined) {
      this.#changedMeanwhile = true;
      return;
    }
    this.#round = this.#watches.values();
    setImmediate(() => this.#poll());
  }

  #poll(): void {
    const round = this.#round;
    if (round === undefined) return;
    const end = performance.now() + SLICE_MS;
    for (;;) {
      const { done, value } = round.next();
      if (done === true) break;
      value.poll();
      if (performance.now() < end) continue;
      setImmediate(() => this.#poll());
      return;
    }
    this.#round = undefined;
    if (!this.#changedMeanwhile) return;
    this.#changedMeanwhile = false;
    this.changed();
  }
}
