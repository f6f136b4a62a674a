/** Goes through the items of a set that changes, a few at a time, and then from the start again. */
export class Rounds {
  #rest: Iterator<string> | undefined;

  /** The next few items, each once; fewer when the set has fewer. */
  next(items: ReadonlySet<string>, count: number): string[] {
    const taken = new Set<string>();
    let fresh = this.#rest === undefined;
    this.#rest ??= items.values();
    while (taken.size < count) {
      const step = this.#rest.next();
      if (step.done !== true) {
        taken.add(step.value);
        continue;
      }
      if (fresh) break;
      fresh = true;
      this.#rest = items.values();
    }
    return [...taken];
  }

  /** Begins anew: the set is another one. */
  reset(): void {
    this.#rest = undefined;
  }
}
