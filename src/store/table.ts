import type { History } from './history.ts';

/** A value of an entry from one revision on. */
interface Version<V> {
  readonly revision: number;
  /** Undefined: the entry does not exist. */
  readonly value: V | undefined;
}

/** One entry of a table, now and at pinned revisions. */
export class Cell<V> {
  readonly key: string;
  /** The revision and the value of the last change. */
  revision: number;
  value: V | undefined;
  /** Previous versions that pins need, newest first. */
  history: readonly Version<V>[] | undefined;
  /** Neighbours in order of the last change. */
  older: Cell<V> | undefined;
  newer: Cell<V> | undefined;

  constructor(key: string, revision: number, value: V | undefined) {
    this.key = key;
    this.revision = revision;
    this.value = value;
  }

  at(revision: number): V | undefined {
    if (this.revision <= revision) return this.value;
    return this.history?.find((version) => version.revision <= revision)?.value;
  }
}

/** Entries by key, with their history, in order of their last change. */
export class Table<V> {
  readonly #history: History;
  readonly #weigh: (value: V) => number;
  readonly #cells = new Map<string, Cell<V>>();
  #lastChanged: Cell<V> | undefined;
  #order: readonly Cell<V>[] | undefined;

  /** `weigh`: the cost of keeping a previous value. */
  constructor(history: History, weigh: (value: V) => number) {
    this.#history = history;
    this.#weigh = weigh;
  }

  get(key: string): V | undefined {
    return this.#cells.get(key)?.value;
  }

  /** The value at the newest revision, or at a pinned one. */
  at(key: string, revision: number): V | undefined {
    return this.#cells.get(key)?.at(revision);
  }

  /** All current entries, or those of a pinned revision, by key. The array does not change. */
  cells(): readonly Cell<V>[] {
    this.#order ??= [...this.#cells.values()].sort((a, b) => compareKeys(a.key, b.key));
    return this.#order;
  }

  /** The entries that changed after a pinned revision, most recent first. */
  *changedSince(revision: number): Generator<Cell<V>, void, undefined> {
    let cell = this.#lastChanged;
    while (cell !== undefined && cell.revision > revision) {
      yield cell;
      cell = cell.older;
    }
  }

  /** Sets an entry, or removes it with undefined, at the new revision. */
  set(key: string, value: V | undefined, revision: number): void {
    const cell = this.#cells.get(key);
    if (cell === undefined) {
      if (value === undefined) return;
      const added = new Cell<V>(key, revision, value);
      this.#cells.set(key, added);
      this.#order = undefined;
      this.#link(added);
      return;
    }
    const previous = { revision: cell.revision, value: cell.value };
    cell.revision = revision;
    cell.value = value;
    if (previous.revision !== revision) {
      this.#unlink(cell);
      this.#link(cell);
      cell.history = [previous, ...(cell.history ?? [])];
      this.#history.supersede({
        revision: previous.revision,
        weight: previous.value === undefined ? 1 : this.#weigh(previous.value),
        forget: () => {
          const left = cell.history?.filter((each) => each !== previous) ?? [];
          cell.history = left.length === 0 ? undefined : left;
          this.#dropIfEmpty(cell);
        },
      });
    }
    this.#dropIfEmpty(cell);
  }

  /** Drops a removed entry that no pin needs. */
  #dropIfEmpty(cell: Cell<V>): void {
    if (cell.value !== undefined || cell.history !== undefined) return;
    if (this.#cells.get(cell.key) !== cell) return;
    this.#cells.delete(cell.key);
    this.#order = undefined;
    this.#unlink(cell);
  }

  #link(cell: Cell<V>): void {
    cell.older = this.#lastChanged;
    cell.newer = undefined;
    if (this.#lastChanged !== undefined) this.#lastChanged.newer = cell;
    this.#lastChanged = cell;
  }

  #unlink(cell: Cell<V>): void {
    if (cell.older !== undefined) cell.older.newer = cell.newer;
    if (cell.newer !== undefined) cell.newer.older = cell.older;
    else this.#lastChanged = cell.older;
    cell.older = undefined;
    cell.newer = undefined;
  }
}

/** Sorts lists of entries, which do not change, and remembers the last result. */
export function sorter<V>(
  compare: (a: Cell<V>, b: Cell<V>) => number,
): (cells: readonly Cell<V>[]) => readonly Cell<V>[] {
  let last: readonly Cell<V>[] = [];
  let sorted = last;
  return (cells) => {
    if (cells !== last) sorted = cells.toSorted(compare);
    last = cells;
    return sorted;
  };
}

/** The order of sets on the wire. */
export function compareKeys(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
