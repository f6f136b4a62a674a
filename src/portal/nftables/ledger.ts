import { SET_NAMES, type Element, type SetName } from './elements.ts';

/** What has to be done to one key. */
export interface ElementChange {
  readonly set: SetName;
  readonly key: string;
  /** Undefined: the key is not there. */
  readonly before: string | undefined;
  /** Undefined: the key is to go. */
  readonly after: string | undefined;
}

/**
 * The elements that there should be, and which of them differ from what was last written.
 *
 * It never looks at the kernel: as long as every transaction is all or nothing and nobody else
 * touches the table, what was written is what is there. Each operation costs what it changes.
 */
export class Ledger {
  readonly #wanted = new Map<SetName, Map<string, string>>(
    SET_NAMES.map((name) => [name, new Map()]),
  );
  /** What was written under the keys that may differ now; undefined: nothing. */
  readonly #before = new Map<SetName, Map<string, string | undefined>>();

  /**
   * Takes elements out and puts others in. All removals count first, so that a key can move from
   * one service port to another.
   */
  update(remove: Iterable<Element>, add: Iterable<Element>): void {
    for (const { set, key } of remove) this.#put(set, key, undefined);
    for (const { set, key, value } of add) this.#put(set, key, value);
  }

  /** What differs from what was last written. */
  changes(): ElementChange[] {
    const changes: ElementChange[] = [];
    for (const [set, keys] of this.#before) {
      const wanted = this.#setOf(set);
      for (const [key, before] of keys) {
        const after = wanted.get(key);
        if (before !== after) changes.push({ set, key, before, after });
      }
    }
    return changes;
  }

  /** All of it has been written. */
  written(): void {
    this.#before.clear();
  }

  /** The elements of one set that there should be, as key and value. */
  elements(set: SetName): ReadonlyMap<string, string> {
    return this.#setOf(set);
  }

  #put(set: SetName, key: string, value: string | undefined): void {
    const wanted = this.#setOf(set);
    const now = wanted.get(key);
    if (now === value) return;
    let before = this.#before.get(set);
    if (before === undefined) this.#before.set(set, (before = new Map()));
    if (!before.has(key)) before.set(key, now);
    if (value === undefined) wanted.delete(key);
    else wanted.set(key, value);
  }

  #setOf(set: SetName): Map<string, string> {
    const found = this.#wanted.get(set);
    if (found === undefined) throw new Error(`no set ${set}`);
    return found;
  }
}
