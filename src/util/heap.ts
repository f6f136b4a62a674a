/** A binary heap: the least comes first, in O(log n) for each item that is put in or taken out. */
export class Heap<T> {
  readonly #compare: (one: T, other: T) => number;
  #items: T[];

  /** `compare` as for sorting. `items` become the heap's own. */
  constructor(compare: (one: T, other: T) => number, items: T[] = []) {
    this.#compare = compare;
    this.#items = items;
    for (let index = (items.length >> 1) - 1; index >= 0; index -= 1) this.#sink(index);
  }

  get size(): number {
    return this.#items.length;
  }

  /** The least, which stays. */
  peek(): T | undefined {
    return this.#items[0];
  }

  push(item: T): void {
    this.#items.push(item);
    this.#rise(this.#items.length - 1);
  }

  /** Takes the least out. */
  pop(): T | undefined {
    const [least] = this.#items;
    const last = this.#items.pop();
    if (last !== undefined && this.#items.length > 0) {
      this.#items[0] = last;
      this.#sink(0);
    }
    return least;
  }

  #rise(from: number): void {
    let index = from;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!this.#isBefore(index, parent)) return;
      this.#swap(index, parent);
      index = parent;
    }
  }

  #sink(from: number): void {
    for (let index = from; ;) {
      const left = 2 * index + 1;
      if (left >= this.#items.length) return;
      const right = left + 1;
      const child = right < this.#items.length && this.#isBefore(right, left) ? right : left;
      if (!this.#isBefore(child, index)) return;
      this.#swap(index, child);
      index = child;
    }
  }

  #isBefore(one: number, other: number): boolean {
    return this.#compare(this.#items[one] as T, this.#items[other] as T) < 0;
  }

  #swap(one: number, other: number): void {
    const item = this.#items[one] as T;
    this.#items[one] = this.#items[other] as T;
    this.#items[other] = item;
  }
}
