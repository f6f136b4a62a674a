import { DELETED, KEPT, type Staged, type StateSize } from './state-size.ts';

/** What an open change set says of some entries, by key. */
export class ChangeSet<T extends object> {
  readonly #staged = new Map<string, Staged<T>>();
  readonly #size: StateSize | undefined;
  readonly #prefixLength: number;

  /** `prefixLength`: the part of the paths before the key. */
  constructor(size: StateSize | undefined, prefixLength = 0) {
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
    this.#size?.stage(this.#prefixLength + key.length, before, previous, value);
  }

  get(key: string): Staged<T> | undefined {
    return this.#staged.get(key);
  }

  keysSet(): string[] {
    return [...this.#staged].filter(([, value]) => typeof value === 'object').map(([key]) => key);
  }

  /**
   * The differences from the current entries, which the caller may apply meanwhile; undefined: removed. `resyncing`:
   * entries that the change set does not name are removed.
   */
  *changes(
    current: ReadonlyMap<string, T>,
    resyncing: boolean,
  ): Generator<[key: string, value: T | undefined], void, undefined> {
    for (const [key, value] of this.#staged) {
      if (value === KEPT || value === current.get(key)) continue;
      if (value !== DELETED) yield [key, value];
      else if (current.has(key)) yield [key, undefined];
    }
    if (!resyncing) return;
    for (const key of current.keys()) if (!this.#staged.has(key)) yield [key, undefined];
  }

  clear(): void {
    this.#staged.clear();
  }
}

/** Sets an entry, or deletes it with undefined. */
export function put<T>(entries: Map<string, T>, key: string, value: T | undefined): void {
  if (value === undefined) entries.delete(key);
  else entries.set(key, value);
}
