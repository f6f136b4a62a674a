import { writeSync } from 'node:fs';

export interface LineWriterOptions {
  /**
   * Writes as much as fits and returns the number of bytes. Throws the system's error: EAGAIN when nothing fits,
   * EPIPE when the reader has closed.
   */
  readonly write: (bytes: Uint8Array) => number;
  /** Waits. Milliseconds. */
  readonly pause: (ms: number) => void;
  readonly lostLine: (count: number) => string;
}

/** How long a slow reader may block the process once. Milliseconds. */
const MAX_WAIT_MS = 50;

/**
 * Writes lines synchronously, so that none is lost when the process ends, but keeps a stuck reader (a pager, a
 * hanging log collector) from stopping the process: after a short wait, lines are dropped until there is room, and
 * then one line reports how many. A line is written completely or not at all.
 */
export class LineWriter {
  readonly #options: LineWriterOptions;
  /** The rest of a partly written line. */
  #rest: Uint8Array | undefined;
  #stuck = false;
  #gone = false;
  #lost = 0;

  constructor(options: LineWriterOptions) {
    this.#options = options;
  }

  /** Writes one line, which ends with its line feed. */
  write(line: string): void {
    if (this.#gone) return;
    if (this.#rest !== undefined) {
      this.#rest = this.#put(this.#rest);
      if (this.#rest !== undefined) {
        this.#lost += 1;
        return;
      }
    }
    const notice = this.#lost === 0 ? '' : this.#options.lostLine(this.#lost);
    const bytes = Buffer.from(notice + line);
    const left = this.#put(bytes);
    if (left?.length === bytes.length) {
      this.#lost += 1;
      return;
    }
    this.#lost = 0;
    this.#rest = left;
  }

  /** Writes bytes and returns those that do not fit, or undefined when all of them did. */
  #put(bytes: Uint8Array): Uint8Array | undefined {
    let left = bytes;
    let waitMs = this.#stuck ? 0 : MAX_WAIT_MS;
    while (left.length > 0 && !this.#gone) {
      try {
        left = left.subarray(this.#options.write(left));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') {
          // The reader has closed: the process continues without a log.
          this.#gone = true;
        } else if (waitMs === 0) {
          this.#stuck = true;
          return left;
        } else {
          this.#options.pause(1);
          waitMs -= 1;
        }
      }
    }
    this.#stuck = false;
    return undefined;
  }
}

export function standardError(lostLine: (count: number) => string): LineWriter {
  // Opening the stream makes a pipe non-blocking; otherwise a full one would stop the process.
  const { fd } = process.stderr;
  const cell = new Int32Array(new SharedArrayBuffer(4));
  return new LineWriter({
    write: (bytes) => writeSync(fd, bytes),
    pause: (ms) => {
      Atomics.wait(cell, 0, 0, ms);
    },
    lostLine,
  });
}
