import { inspect } from 'node:util';
import { comparePaths } from '../api/paths.ts';

/** An immutable map in order of the key. Unlike with a Map, a copy of many entries with few changes takes little time. */
export class SortedMap<V> implements ReadonlyMap<string, V> {
  readonly #keys: readonly string[];
  readonly #values: readonly V[];

  constructor(keys: readonly string[] = [], values: readonly V[] = []) {
    this.#keys = keys;
    this.#values = values;
  }

  get size(): number {
    return this.#keys.length;
  }

  get(key: string): V | undefined {
    const at = this.#indexOf(key);
    return this.#keys[at] === key ? this.#values[at] : undefined;
  }

  has(key: string): boolean {
    return this.#keys[this.#indexOf(key)] === key;
  }

  keys() {
    return this.#keys.values();
  }

  values() {
    return this.#values.values();
  }

  *entries(): Generator<[string, V], undefined> {
    for (let at = 0; at < this.size; at += 1) {
      yield [this.#keys[at] as string, this.#values[at] as V];
    }
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  forEach(callback: (value: V, key: string, map: this) => void): void {
    this.#keys.forEach((key, at) => callback(this.#values[at] as V, key, this));
  }

  [inspect.custom](): ReadonlyMap<string, V> {
    return new Map(this);
  }

  /** A copy with changes, in any order; the map itself if nothing differs. Undefined: removed. */
  with(changes: Iterable<readonly [string, V | undefined]>): SortedMap<V> {
    const differing = [...changes].filter(([key, value]) => this.get(key) !== value);
    if (differing.length === 0) return this;
    const keys: string[] = [];
    const values: V[] = [];
    let from = 0;
    const copyTo = (end: number): void => {
      for (; from < end; from += 1) {
        keys.push(this.#keys[from] as string);
        values.push(this.#values[from] as V);
      }
    };
    for (const [key, value] of differing.sort(([a], [b]) => comparePaths(a, b))) {
      copyTo(this.#indexOf(key));
      if (this.#keys[from] === key) from += 1;
      if (value === undefined) continue;
      keys.push(key);
      values.push(value);
    }
    copyTo(this.#keys.length);
    // Copies have no spare capacity, which very many services would keep.
    return new SortedMap(keys.slice(), values.slice());
  }

  /** Of the key, or where it would be. */
  #indexOf(key: string): number {
    let [low, high] = [0, this.#keys.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (comparePaths(this.#keys[middle] ?? '', key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
