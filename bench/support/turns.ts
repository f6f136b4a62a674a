/** Watches the turns of the event loop: how long each takes, and how much of that it is at work. */
export class Turns {
  #longest = 0;
  #mostWork = 0;
  #lastAt = performance.now();
  #lastWork = work();
  #stopped = false;

  constructor() {
    this.#turn();
  }

  /** Forgets what was so far. */
  reset(): void {
    this.#longest = 0;
    this.#mostWork = 0;
    this.#lastAt = performance.now();
    this.#lastWork = work();
  }

  /** Resolves when the present turn has been counted. */
  async one(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }

  /** Of all turns, the longest time at work. Milliseconds. */
  get mostWork(): number {
    return this.#mostWork;
  }

  /** On a busy machine the longest turn is long because the thread does not get a core. */
  longest(): string {
    return `${this.#longest.toFixed(0)} ms (at work for at most ${this.#mostWork.toFixed(0)} ms)`;
  }

  stop(): void {
    this.#stopped = true;
  }

  #turn(): void {
    const at = performance.now();
    const done = work();
    this.#longest = Math.max(this.#longest, at - this.#lastAt);
    this.#mostWork = Math.max(this.#mostWork, done - this.#lastWork);
    this.#lastAt = at;
    this.#lastWork = done;
    // Not at every turn, which would keep a core busy.
    if (!this.#stopped) setTimeout(() => this.#turn(), 1);
  }
}

/** Time of this thread on a core so far. Milliseconds. */
function work(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
