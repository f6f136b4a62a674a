import type { TypedChannel } from '../../src/util/channel.ts';
import type { Teardown } from './sockets.ts';

/** Generous for a loaded machine. */
const DEADLINE_MS = 20_000;

/** Things that arrive, to be waited for one after another. */
export class Mailbox<T> {
  readonly #what: string;
  readonly #items: T[] = [];
  readonly #waiting: ((item: T) => void)[] = [];

  /** `what` is named when nothing arrives. */
  constructor(what: string) {
    this.#what = what;
  }

  /** How many have arrived and were not taken. */
  get size(): number {
    return this.#items.length;
  }

  put(item: T): void {
    const waiting = this.#waiting.shift();
    if (waiting) waiting(item);
    else this.#items.push(item);
  }

  /** The next one. Rejects when none arrives within the deadline. */
  take(): Promise<T> {
    const item = this.#items.shift();
    if (item !== undefined) return Promise.resolve(item);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const taken = (arrived: T): void => {
      clearTimeout(timer);
      resolve(arrived);
    };
    const timer = setTimeout(() => {
      this.#waiting.splice(this.#waiting.indexOf(taken), 1);
      reject(new Error(`${this.#what} did not come within ${DEADLINE_MS} ms`));
    }, DEADLINE_MS);
    this.#waiting.push(taken);
    return promise;
  }
}

/** Calls back for each event of a channel until the test ends. */
export function listening<Event extends object>(
  t: Teardown,
  channel: TypedChannel<Event>,
  onEvent: (event: Event) => void,
): void {
  channel.subscribe(onEvent);
  t.teardown(() => channel.unsubscribe(onEvent));
}
