import { LinkedList, type ListNode } from '../util/linked-list.ts';

/** A version of an entry that has been replaced. */
export interface Superseded {
  /** The revision at which it was created. */
  readonly revision: number;
  /** What keeping it costs, in entries. */
  readonly weight: number;
  /** Drops the version: no pin needs it any more. */
  forget(): void;
}

/** A claim on the state at one revision. */
export interface Pin {
  readonly revision: number;
  /** Idempotent. */
  release(): void;
}

/** The owner of a pin. */
export interface Holder {
  /** The pin cannot be kept any longer, and must be released now: a state is being changed. */
  onEvicted(): void;
}

/** A pinned revision, and the versions kept for it. */
class Mark {
  readonly revision: number;
  readonly holders = new LinkedList<Holder>();
  versions: Superseded[] = [];
  older: Mark | undefined;
  newer: Mark | undefined;

  constructor(revision: number) {
    this.revision = revision;
  }
}

/** A class because a thousand pins are created and released at each change, and fields cost less than closures. */
class HeldPin implements Pin {
  readonly revision: number;
  readonly #mark: Mark;
  readonly #node: ListNode<Holder>;
  readonly #onRelease: (mark: Mark, node: ListNode<Holder>) => void;

  constructor(
    revision: number,
    mark: Mark,
    node: ListNode<Holder>,
    onRelease: (mark: Mark, node: ListNode<Holder>) => void,
  ) {
    this.revision = revision;
    this.#mark = mark;
    this.#node = node;
    this.#onRelease = onRelease;
  }

  release(): void {
    this.#onRelease(this.#mark, this.#node);
  }
}

/**
 * The previous versions that readers need, and until when.
 *
 * Readers pin the revision that they have seen. A replaced version is kept while a pin lies within its lifetime; so
 * a reader can get exactly its difference, even after a long time, and readers that keep up cost nothing. The
 * number of kept versions is limited: above the limit the readers that lag behind furthest lose their pins.
 */
export class History {
  #limit: number;
  #oldest: Mark | undefined;
  #newest: Mark | undefined;
  #kept = 0;

  /** `limit`: maximum total weight. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Sets another limit, which applies from the next `enforceLimit` on. */
  set limit(limit: number) {
    this.#limit = limit;
  }

  /** Weight of the versions that are kept. */
  get kept(): number {
    return this.#kept;
  }

  /** Pins the newest revision. */
  pin(revision: number, holder: Holder): Pin {
    const mark = this.#markOf(revision);
    const node = mark.holders.add(holder);
    return new HeldPin(revision, mark, node, this.#release);
  }

  /** A version was replaced at the revision after the newest that can have been pinned. */
  supersede(version: Superseded): void {
    if (this.#newest === undefined || this.#newest.revision < version.revision) {
      version.forget();
      return;
    }
    this.#newest.versions.push(version);
    this.#kept += version.weight;
  }

  /** Evicts pins until the limit is met. */
  enforceLimit(): void {
    while (this.#kept > this.#limit && this.#oldest !== undefined) {
      const holder = this.#oldest.holders.first;
      holder?.item.onEvicted();
      if (this.#oldest?.holders.first === holder) throw new Error('a pin was not released');
    }
  }

  #markOf(revision: number): Mark {
    if (this.#newest?.revision === revision) return this.#newest;
    const mark = new Mark(revision);
    mark.older = this.#newest;
    if (this.#newest === undefined) this.#oldest = mark;
    else this.#newest.newer = mark;
    this.#newest = mark;
    return mark;
  }

  readonly #release = (mark: Mark, node: ListNode<Holder>): void => {
    const { size } = mark.holders;
    node.remove();
    // Only for the release of the last holder, and only once.
    if (size === 0 || mark.holders.size > 0) return;
    const { older, newer, versions } = mark;
    if (older === undefined) this.#oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.#newest = older;
    else newer.older = older;
    for (const version of versions) {
      // Another pin may still need it. Later pins cannot: they are newer than its replacement.
      if (older !== undefined && older.revision >= version.revision) {
        older.versions.push(version);
      } else {
        this.#kept -= version.weight;
        version.forget();
      }
    }
  };
}
