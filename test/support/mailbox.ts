import type { TypedChannel } from '../../src/util/channel.ts';
import type { Teardown } from './sockets.ts';
import { until } from './until.ts';

/** Things that arrive, to be waited for one after another. */
export class Mailbox<T> {
  readonly #what: string;
  readonly #items: T[] = [];

  /** `what` is named when nothing arrives. */
  constructor(what: string) {
    this.#what = what;
  }

  /** How many have arrived and were not taken. */
  get size(): number {
    return this.#items.length;
  }

  put(item: T): void {
    this.#items.push(item);
  }

  /** The next one. Rejects when none arrives within the deadline. */
  async take(): Promise<T> {
    await until(() => this.size > 0, undefined, this.#what);
    return this.#items.shift() as T;
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
