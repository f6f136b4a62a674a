import { KpngError } from '../errors.ts';
import { LinkedList, type ListNode } from '../util/linked-list.ts';

/**
 * How many endpoints of previous states are kept for readers that lag behind. Above it, those that lag furthest lose
 * their position.
 */
export const DEFAULT_MAX_HISTORY = 500_000;

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

/** Called with the reason when a pin cannot be kept any longer, and must be released now: a state is being changed. */
export type OnEvicted = (error: KpngError) => void;

/** A pinned revision, and the versions kept for it. */
interface Mark {
  readonly revision: number;
  readonly holders: LinkedList<OnEvicted>;
  readonly versions: Superseded[];
}

/** A class because a thousand pins are created and released at each change, and fields cost less than closures. */
class HeldPin implements Pin {
  readonly #history: History;
  readonly #mark: Mark;
  readonly #node: ListNode<OnEvicted>;

  constructor(history: History, mark: Mark, node: ListNode<OnEvicted>) {
    this.#history = history;
    this.#mark = mark;
    this.#node = node;
  }

  get revision(): number {
    return this.#mark.revision;
  }

  release(): void {
    this.#node.remove();
    if (this.#mark.holders.size === 0) this.#history.release(this.#mark);
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
  /** Maximum total weight; applies from the next `enforceLimit` on. */
  limit: number;
  /** Oldest first; at most one for each reader. */
  readonly #marks: Mark[] = [];
  #kept = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  get kept(): number {
    return this.#kept;
  }

  pin(revision: number, onEvicted: OnEvicted): Pin {
    let mark = this.#marks.at(-1);
    if (mark?.revision !== revision) {
      mark = { revision, holders: new LinkedList(), versions: [] };
      this.#marks.push(mark);
    }
    return new HeldPin(this, mark, mark.holders.add(onEvicted));
  }

  /** A version was replaced at the revision after the newest that can have been pinned. */
  supersede(version: Superseded): void {
    this.#kept += version.weight;
    this.#keep(version, this.#marks.at(-1));
  }

  /** Evicts pins until the limit is met. */
  enforceLimit(): void {
    while (this.#kept > this.limit) {
      const holder = this.#marks[0]?.holders.first;
      if (holder === undefined) return;
      holder.item(lagsBehind());
      if (this.#marks[0]?.holders.first === holder) throw new Error('a pin was not released');
    }
  }

  /** Part of `Pin.release`: no one holds the mark any more. Idempotent. */
  release(mark: Mark): void {
    const at = this.#marks.indexOf(mark);
    if (at === -1) return;
    this.#marks.splice(at, 1);
    // Another pin may still need them. Later pins cannot: they are newer than their replacements.
    for (const version of mark.versions) this.#keep(version, this.#marks[at - 1]);
  }

  /** Keeps a version for the last pin before its replacement, if that has seen it. */
  #keep(version: Superseded, last: Mark | undefined): void {
    if (last !== undefined && last.revision >= version.revision) {
      last.versions.push(version);
    } else {
      this.#kept -= version.weight;
      version.forget();
    }
  }
}

function lagsBehind(): KpngError {
  return new KpngError(
    'KPNG_LIMIT_REACHED',
    'A client lags too far behind to get only what differs; it has to reconnect.',
  );
}
