import { memory } from '../support/process-usage.ts';

/** Time between looks. Milliseconds. */
const EVERY_MS = 50;

/** Looks at the resident memory of a process, which may be replaced by another one meanwhile. */
export class MemoryWatch {
  readonly #pid: () => number;
  readonly #timer: NodeJS.Timeout;
  #peak = 0;

  constructor(pid: () => number) {
    this.#pid = pid;
    this.#timer = setInterval(() => this.look(), EVERY_MS);
  }

  /** The most so far. Bytes. */
  get peak(): number {
    return this.#peak;
  }

  /** Now. Bytes. */
  look(): number {
    const { resident = 0 } = memory(this.#pid()) ?? {};
    this.#peak = Math.max(this.#peak, resident);
    return resident;
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
