import type { TypedChannel } from '../util/channel.ts';

/** Channels that are listened to together and left together. */
export class Subscriptions {
  readonly #ends: (() => void)[] = [];

  /** Listens to a channel. */
  on<Event extends object>(channel: TypedChannel<Event>, listener: (event: Event) => void): void {
    channel.subscribe(listener);
    this.#ends.push(() => channel.unsubscribe(listener));
  }

  /** Leaves every channel. Idempotent. */
  end(): void {
    for (const end of this.#ends.splice(0)) end();
  }
}
