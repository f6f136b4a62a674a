import { channel, type Channel } from 'node:diagnostics_channel';

export interface TypedChannel<T extends object> {
  readonly name: string;
  readonly hasSubscribers: boolean;
  publish(message: T): void;
  subscribe(onMessage: (message: T) => void): void;
  unsubscribe(onMessage: (message: T) => void): boolean;
}

/**
 * Makes a typed channel; `name` is prefixed with `kpng-userspace:`.
 *
 * Publishing without subscribers does nothing. Where events are frequent, or messages costly, build these only if the
 * channel `hasSubscribers`.
 */
export function typedChannel<T extends object>(name: string): TypedChannel<T> {
  const made: Channel = channel(`kpng-userspace:${name}`);
  for (const method of ['subscribe', 'unsubscribe'] as const) {
    Object.defineProperty(made, method, {
      configurable: true,
      value(this: Channel, listener: (message: unknown) => void) {
        // A channel changes its prototype with its first and last subscriber.
        const methods = Object.getPrototypeOf(this) as Channel;
        const result = methods[method].call(this, listener);
        for (const each of watchers) each();
        return result;
      },
    });
  }
  return made as unknown as TypedChannel<T>;
}

const watchers = new Set<() => void>();

/**
 * Calls `changed` whenever a typed channel may have gained or lost a subscriber, through this module or through
 * `node:diagnostics_channel` itself, which offers no such notification. Returns a function that ends this.
 */
export function watchSubscribers(changed: () => void): () => void {
  watchers.add(changed);
  return () => watchers.delete(changed);
}

/** Subscriptions to several channels that end together. */
export class Subscriptions {
  readonly #ends: (() => void)[] = [];

  on<Event extends object>(channel: TypedChannel<Event>, listener: (event: Event) => void): void {
    channel.subscribe(listener);
    this.#ends.push(() => channel.unsubscribe(listener));
  }

  /** Unsubscribes from every channel. Idempotent. */
  end(): void {
    for (const end of this.#ends.splice(0)) end();
  }
}
