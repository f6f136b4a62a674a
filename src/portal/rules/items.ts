/** One entry of a named set: an element of nftables, or a rule of iptables. */
export interface Item<Name extends string = string> {
  readonly set: Name;
  /** Unique within its set. */
  readonly key: string;
  /** What there is under the key; may be empty. */
  readonly value: string;
}

/** What has to be done to one key. */
export interface ItemChange<Name extends string = string> {
  readonly set: Name;
  readonly key: string;
  /** Undefined: the key is not there. */
  readonly before: string | undefined;
  /** Undefined: the key is to go. */
  readonly after: string | undefined;
}

/** What there should be, by set. */
export interface Items<Name extends string> {
  /** The items of one set, as key and value. */
  items(set: Name): ReadonlyMap<string, string>;
}

const NOTHING: ReadonlyMap<string, string> = new Map();

/**
 * The items that there should be, and which of them differ from what was last written. It never looks at the
 * kernel. Each operation costs what it changes.
 */
export class ItemMap<Name extends string = string> implements Items<Name> {
  readonly #wanted = new Map<Name, Map<string, string>>();
  /** What was written under the keys that may differ now; undefined: nothing. */
  readonly #before = new Map<Name, Map<string, string | undefined>>();

  /** Removals count first, so that a key can move from one service port to another. */
  update(remove: Iterable<Item<Name>>, add: Iterable<Item<Name>>): void {
    for (const { set, key } of remove) this.#put(set, key, undefined);
    for (const { set, key, value } of add) this.#put(set, key, value);
  }

  /** What differs from what was last written. */
  changes(): ItemChange<Name>[] {
    return [...this.#before].flatMap(([set, keys]) =>
      [...keys]
        .map(([key, before]) => ({ set, key, before, after: this.items(set).get(key) }))
        .filter(({ before, after }) => before !== after),
    );
  }

  /** All of it has been written. */
  written(): void {
    this.#before.clear();
  }

  items(set: Name): ReadonlyMap<string, string> {
    return this.#wanted.get(set) ?? NOTHING;
  }

  #put(set: Name, key: string, value: string | undefined): void {
    let wanted = this.#wanted.get(set);
    if (wanted === undefined) this.#wanted.set(set, (wanted = new Map()));
    const now = wanted.get(key);
    if (now === value) return;
    let before = this.#before.get(set);
    if (before === undefined) this.#before.set(set, (before = new Map()));
    if (!before.has(key)) before.set(key, now);
    if (value === undefined) wanted.delete(key);
    else wanted.set(key, value);
  }
}
