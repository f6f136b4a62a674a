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
  const untyped: Channel = channel(`kpng-userspace:${name}`);
  return untyped as unknown as TypedChannel<T>;
}

/**
 * Calls `changed` whenever one of the channels gains or loses a subscriber, through this module or through
 * `node:diagnostics_channel` itself. Returns a function that ends this.
 *
 * Node offers no such notification, so this wraps two methods of the channel.
 */
export function watchSubscribers(
  channels: readonly TypedChannel<object>[],
  changed: () => void,
): () => void {
  for (const each of channels) {
    const listeners = watchers.get(each) ?? cover(each);
    listeners.add(changed);
  }
  return () => {
    for (const each of channels) watchers.get(each)?.delete(changed);
  };
}

const watchers = new WeakMap<object, Set<() => void>>();

function cover(watched: TypedChannel<object>): Set<() => void> {
  const listeners = new Set<() => void>();
  watchers.set(watched, listeners);
  for (const name of ['subscribe', 'unsubscribe'] as const) {
    Object.defineProperty(watched, name, {
      configurable: true,
      value(this: object, listener: (message: object) => void) {
        // A channel changes its prototype with its first and last subscriber.
        const methods = Object.getPrototypeOf(this) as TypedChannel<object>;
        const result = methods[name].call(this as TypedChannel<object>, listener);
        for (const each of listeners) each();
        return result;
      },
    });
  }
  return listeners;
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
