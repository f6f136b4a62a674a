import { KpngError } from '../errors.ts';
import { put } from '../util/compare.ts';

/**
 * How many endpoints of previous states are kept for readers that lag behind. Above it, those that lag furthest lose
 * their position.
 */
export const DEFAULT_MAX_HISTORY = 500_000;

type Order = (a: string, b: string) => number;

/** A pinned revision of a table. */
interface Mark<V> {
  readonly revision: number;
  /** The values that were replaced after it and before the next mark; undefined: there was none. */
  readonly replaced: Map<string, V | undefined>;
}

/** Entries by key, as they are now and at pinned revisions. */
export class Table<V> {
  readonly #current = new Map<string, V>();
  readonly current: ReadonlyMap<string, V> = this.#current;
  readonly #weigh: (value: V) => number;
  /** Oldest first. */
  readonly #marks: Mark<V>[] = [];
  #kept = 0;
  /** The keys in each order that was asked for. */
  readonly #keys = new Map<Order | undefined, readonly string[]>();

  /** `weigh`: the cost of keeping a previous value. */
  constructor(weigh: (value: V) => number) {
    this.#weigh = weigh;
  }

  /** The total weight of previous values. */
  get kept(): number {
    return this.#kept;
  }

  get(key: string): V | undefined {
    return this.#current.get(key);
  }

  /** The value at the newest revision, or at a pinned one. There is nothing at revision 0. */
  at(key: string, revision: number): V | undefined {
    if (revision === 0) return undefined;
    let value = this.get(key);
    for (let index = this.#marks.length - 1; index >= 0; index -= 1) {
      const { revision: pinned, replaced } = this.#marks[index] as Mark<V>;
      if (pinned < revision) break;
      if (replaced.has(key)) value = replaced.get(key);
    }
    return value;
  }

  /**
   * The keys of current entries and of those at pinned revisions, sorted; or only of those that have changed after a pinned
   * one. The array does not change.
   */
  keys(order?: Order, since = 0): readonly string[] {
    if (since > 0) return [...this.changedSince(since)].sort(order);
    const keys = this.#keys.get(order) ?? [...this.changedSince(0)].sort(order);
    this.#keys.set(order, keys);
    return keys;
  }

  /** The keys of entries that have changed after a pinned revision, or with 0 of all, in no particular order. */
  changedSince(revision: number): Set<string> {
    const keys = new Set<string>();
    for (const mark of this.#marks) {
      if (mark.revision >= revision) for (const key of mark.replaced.keys()) keys.add(key);
    }
    if (revision === 0) for (const key of this.#current.keys()) keys.add(key);
    return keys;
  }

  /** Sets an entry, or removes it with undefined. */
  set(key: string, value: V | undefined): void {
    const before = this.get(key);
    const last = this.#marks.at(-1);
    if (last?.replaced.has(key) === false) {
      last.replaced.set(key, before);
      this.#kept += this.#weight(before);
    }
    if (before === undefined || value === undefined) this.#keys.clear();
    put(this.#current, key, value);
  }

  /** Keeps the newest revision, which is the current one. */
  mark(revision: number): void {
    this.#marks.push({ revision, replaced: new Map() });
  }

  /** Keeps a revision no longer. */
  unmark(revision: number): void {
    const index = this.#marks.findIndex((mark) => mark.revision === revision);
    const earlier = this.#marks[index - 1]?.replaced;
    const [mark] = this.#marks.splice(index, 1);
    for (const [key, value] of mark?.replaced ?? []) {
      // An entry that did not change in between had the same value at the mark before. No later one can need it.
      if (earlier?.has(key) === false) earlier.set(key, value);
      else this.#kept -= this.#weight(value);
    }
  }

  #weight(value: V | undefined): number {
    return value === undefined ? 1 : this.#weigh(value);
  }
}

type Versioned = Pick<Table<never>, 'kept' | 'mark' | 'unmark'>;

/** A claim on the state at one revision. */
export interface Pin {
  readonly revision: number;
  /** Idempotent. */
  release(): void;
}

/** Called with the reason when a pin could not be kept any longer. A state is being changed. */
export type OnEvicted = (error: KpngError) => void;

/**
 * The revisions that readers have seen, and so need.
 *
 * A replaced value is kept while a pin lies within its lifetime; so a reader can get exactly its difference, even after a
 * long time, and readers that keep up cost nothing. The number of kept values is limited: above the limit the readers
 * that lag behind furthest lose their pins.
 */
export class History {
  /** Maximum total weight; applies from the next `enforceLimit` on. */
  limit: number = DEFAULT_MAX_HISTORY;
  readonly #tables: readonly Versioned[];
  /** By revision, oldest first; each in the order in which they came. */
  readonly #pins = new Map<number, Map<Pin, OnEvicted>>();

  constructor(...tables: readonly Versioned[]) {
    this.#tables = tables;
  }

  get kept(): number {
    return this.#tables.reduce((sum, { kept }) => sum + kept, 0);
  }

  /** Pins the newest revision. */
  pin(revision: number, onEvicted: OnEvicted = () => {}): Pin {
    const pins = this.#pins.get(revision) ?? new Map<Pin, OnEvicted>();
    const pin: Pin = {
      revision,
      release: () => {
        if (!pins.delete(pin) || pins.size > 0) return;
        this.#pins.delete(revision);
        for (const table of this.#tables) table.unmark(revision);
      },
    };
    if (pins.size === 0) {
      this.#pins.set(revision, pins);
      for (const table of this.#tables) table.mark(revision);
    }
    pins.set(pin, onEvicted);
    return pin;
  }

  /** Evicts pins until the limit is met. */
  enforceLimit(): void {
    while (this.kept > this.limit) {
      const [pins] = this.#pins.values();
      const [[pin, onEvicted] = []] = pins ?? [];
      if (pin === undefined) return;
      pin.release();
      const reason = 'A client lags too far behind to get only what differs; it has to reconnect.';
      onEvicted?.(new KpngError('KPNG_LIMIT_REACHED', reason));
    }
  }
}

/** The order of sets on the wire. */
export function compareKeys(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
