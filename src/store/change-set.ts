import { KpngError } from '../errors.ts';

/** The effect of a change set on one entry. */
export type Staged<T> = T | typeof DELETED | typeof KEPT;
export const DELETED = Symbol('deleted');
/** The server sent the entry in an invalid form: the old value stays. */
export const KEPT = Symbol('kept');

/** Limits of the state from a server, and of a change set before its Sync. */
export interface StateLimits {
  /** Services, endpoints (those without a service too) and nodes. */
  readonly maxEntries: number;
  /** Their estimated size in memory. Bytes. */
  readonly maxBytes: number;
}

export const DEFAULT_STATE_LIMITS: StateLimits = {
  maxEntries: 500_000,
  maxBytes: 512 * 1024 * 1024,
};

/** What an open change set says of some entries, by key. */
export class ChangeSet<T extends object> {
  readonly #staged = new Map<string, Staged<T>>();
  readonly #size: StateSize;
  readonly #prefixLength: number;

  /** `prefixLength`: the part of the paths before the key. */
  constructor(size: StateSize, prefixLength = 0) {
    this.#size = size;
    this.#prefixLength = prefixLength;
  }

  /**
   * Adds an operation; `before` is the current value. An invalid one removes nothing, neither from the state nor from
   * the change set. Throws as `StateSize.stage`.
   */
  stage(key: string, value: Staged<T>, before: T | undefined): void {
    const previous = this.#staged.get(key);
    if (value === KEPT && previous !== undefined) return;
    this.#staged.set(key, value);
    this.#size.stage(this.#prefixLength + key.length, before, previous, value);
  }

  get(key: string): Staged<T> | undefined {
    return this.#staged.get(key);
  }

  keysSet(): string[] {
    return [...this.#staged].filter(([, value]) => typeof value === 'object').map(([key]) => key);
  }

  /**
   * The differences from the current entries, which the caller may apply meanwhile; undefined: removed. After a reset,
   * entries that the change set does not name are removed.
   */
  *changes(
    current: ReadonlyMap<string, T>,
  ): Generator<[key: string, value: T | undefined], void, undefined> {
    for (const [key, value] of this.#staged) {
      if (value === KEPT || value === current.get(key)) continue;
      if (value !== DELETED) yield [key, value];
      else if (current.has(key)) yield [key, undefined];
    }
    if (!this.#size.resyncing) return;
    for (const key of current.keys()) if (!this.#staged.has(key)) yield [key, undefined];
  }

  clear(): void {
    this.#staged.clear();
  }
}

/** Overhead of an entry. Bytes. */
const ENTRY_BYTES = 128;

/**
 * Measures a state and its open change set. No value may change after it was counted: its size is computed again when
 * it is removed.
 */
export class StateSize {
  readonly #limits: StateLimits;
  /** Every entry named in the change set, including deleted ones. */
  readonly #staged = new SizeCounter();
  /** The state with the next Sync. */
  readonly #next = new SizeCounter();
  #resyncing = false;

  constructor(limits: StateLimits = DEFAULT_STATE_LIMITS) {
    this.#limits = limits;
  }

  /** After a reset, all entries are unconfirmed until the next sync. */
  get resyncing(): boolean {
    return this.#resyncing;
  }

  /** The full data set follows. */
  reset(): void {
    this.#staged.clear();
    this.#next.clear();
    this.#resyncing = true;
  }

  /**
   * Adds an entry to the change set. `before`: the current value; `previous`: the one in the change set so far;
   * undefined: none. Throws KPNG_STATE_TOO_LARGE; the change set must then be discarded.
   */
  stage(
    pathLength: number,
    before: object | undefined,
    previous: Staged<object> | undefined,
    value: Staged<object>,
  ): void {
    const path = ENTRY_BYTES + pathLength;
    const settled = (staged: Staged<object>) => (staged === KEPT ? before : staged);
    const was = previous === undefined ? (this.#resyncing ? undefined : before) : settled(previous);
    const is = settled(value);
    if (previous === undefined) this.#staged.add(1, path);
    this.#staged.add(0, sizeOf(value) - sizeOf(previous));
    if (typeof was === 'object') this.#next.add(-1, -path - sizeOf(was));
    if (typeof is === 'object') this.#next.add(1, path + sizeOf(is));
    this.#check(this.#staged);
    this.#check(this.#next);
  }

  /** The change set is now part of the state. */
  sync(): void {
    this.#staged.clear();
    this.#resyncing = false;
  }

  #check({ entries, bytes }: SizeCounter): void {
    const { maxEntries, maxBytes } = this.#limits;
    if (entries <= maxEntries && bytes <= maxBytes) return;
    const limit =
      entries > maxEntries
        ? `${maxEntries} services, endpoints and nodes`
        : `${Math.round(maxBytes / 1024 / 1024)} MiB in memory`;
    throw new KpngError('KPNG_STATE_TOO_LARGE', `The server sent a state of more than ${limit}.`);
  }
}

class SizeCounter {
  entries = 0;
  bytes = 0;

  add(entries: number, bytes: number): void {
    this.entries += entries;
    this.bytes += bytes;
  }

  clear(): void {
    this.entries = 0;
    this.bytes = 0;
  }
}

/** Estimated size of a decoded message in memory: a few bytes on the wire can take many here. */
function sizeOf(value: unknown): number {
  if (typeof value === 'string') return 16 + value.length;
  if (typeof value !== 'object' || value === null) return 0;
  let bytes = 48;
  for (const key in value) bytes += 8 + sizeOf((value as Readonly<Record<string, unknown>>)[key]);
  return bytes;
}

/** Sets an entry, or deletes it with undefined. */
export function put<T>(entries: Map<string, T>, key: string, value: T | undefined): void {
  if (value === undefined) entries.delete(key);
  else entries.set(key, value);
}
