import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { isEqual } from '../util/compare.ts';

/** Values of which there may be very many are not shared. */
const MAX_SHARED = 50_000;

/** Fields whose values many messages have in common. */
const SHARED: ReadonlySet<string> = new Set(
  'namespace type ports conditions topology portOverrides'.split(' '),
);

const NONE: never[] = [];
/** Replace equal values: no addresses, no labels. */
const EMPTY: readonly object[] = [{ v4: NONE, v6: NONE }, {}];

/**
 * Replaces parts of messages with equal ones that are kept once: in a large cluster, copies would take most of the
 * memory.
 */
export class Compactor {
  readonly #shared = new Map<string, unknown>();
  /** The last value of each shared field: the next one is often equal. */
  readonly #last: Record<string, unknown> = {};

  /** `previous`: a message that is likely to have the same hints. */
  compact(message: Service | EndpointInfo, previous?: EndpointInfo): void {
    this.#compact(message as never);
    if ('hints' in message && isEqual(message.hints, previous?.hints)) {
      message.hints = previous?.hints;
    }
  }

  #compact(message: Record<string, unknown>): void {
    for (const key in message) {
      const value = message[key];
      if (SHARED.has(key)) {
        if (!isEqual(this.#last[key], value)) this.#last[key] = this.#share(value);
        message[key] = this.#last[key];
      } else if (Array.isArray(value)) {
        if (value.length === 0) message[key] = NONE;
      } else if (typeof value === 'object' && value !== null) {
        this.#compact(value as Record<string, unknown>);
        message[key] = sharedIfEmpty(value);
      }
    }
  }

  /** An equal value, always the same object. */
  #share<T>(value: T): T {
    if (value === undefined) return value;
    const key = JSON.stringify(value);
    const known = this.#shared.get(key);
    if (known !== undefined) return known as T;
    // Values come and go; current ones are added again at once.
    if (this.#shared.size >= MAX_SHARED) this.#shared.clear();
    this.#shared.set(key, value);
    return value;
  }
}

function sharedIfEmpty(value: object): object {
  return EMPTY.find((each) => isEqual(each, value)) ?? value;
}
