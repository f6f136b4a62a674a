/** A node of a ring. It keeps its value when it moves to another ring. */
export class RingNode<T> {
  readonly value: T;
  /** Neighbours while it is in a ring, else itself. Only the ring writes them. */
  next: RingNode<T> = this;
  prev: RingNode<T> = this;

  constructor(value: T) {
    this.value = value;
  }
}

/**
 * A circular list with a cursor: a rotation for balancing, or a queue when only its ends are used. Every operation
 * takes constant time.
 *
 * A node is in one ring at a time, known to the caller.
 */
export class Ring<T> {
  #cursor: RingNode<T> | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The node whose turn it is; in a queue the oldest. */
  get first(): RingNode<T> | undefined {
    return this.#cursor;
  }

  /** Adds a node right behind the cursor, so that it comes last. */
  join(node: RingNode<T>): void {
    const cursor = this.#cursor;
    this.#size += 1;
    if (cursor === undefined) {
      this.#cursor = node;
      return;
    }
    node.next = cursor;
    node.prev = cursor.prev;
    cursor.prev.next = node;
    cursor.prev = node;
  }

  /** Removes a node. If it was the current one, the next one becomes current. */
  leave(node: RingNode<T>): void {
    this.#size -= 1;
    if (this.#size === 0) {
      this.#cursor = undefined;
      return;
    }
    if (this.#cursor === node) this.#cursor = node.next;
    node.prev.next = node.next;
    node.next.prev = node.prev;
    node.next = node;
    node.prev = node;
  }

  /** Moves a node of this ring to the end, like leaving and joining. */
  moveLast(node: RingNode<T>): void {
    if (this.#cursor === node) {
      this.#cursor = node.next;
      return;
    }
    this.leave(node);
    this.join(node);
  }

  /** Moves the cursor past this node. */
  advancePast(node: RingNode<T>): void {
    this.#cursor = node.next;
  }

  /** Returns the current value and advances the cursor. */
  turn(): T | undefined {
    const node = this.#cursor;
    if (node === undefined) return undefined;
    this.#cursor = node.next;
    return node.value;
  }

  /** The values in rotation order. */
  *[Symbol.iterator](): IterableIterator<T> {
    let node = this.#cursor;
    for (let left = this.#size; left > 0 && node !== undefined; left -= 1) {
      const next: RingNode<T> = node.next;
      yield node.value;
      node = next;
    }
  }
}
