import { channel, type Channel } from 'node:diagnostics_channel';

/** A diagnostics channel whose messages have one type. */
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
 * Build a message only when somebody listens: guard every publish with `hasSubscribers`.
 */
export function typedChannel<T extends object>(name: string): TypedChannel<T> {
  const untyped: Channel = channel(`kpng-userspace:${name}`);
  return untyped as unknown as TypedChannel<T>;
}
