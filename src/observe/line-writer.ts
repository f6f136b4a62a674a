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
 * Returns a function that writes a line, which ends with its line feed, synchronously, so that none is lost when the
 * process ends, but keeps a stuck reader (a pager, a hanging log collector) from stopping the process: after a short
 * wait, lines are dropped until there is room, and then one line reports how many. A line is written completely or not at
 * all.
 */
export function lineWriter({ write, pause, lostLine }: LineWriterOptions): (line: string) => void {
  /** The rest of a partly written line. */
  let rest: Uint8Array = new Uint8Array();
  let isStuck = false;
  let isGone = false;
  let lost = 0;

  /** Writes bytes and returns those that do not fit. */
  const put = (bytes: Uint8Array): Uint8Array => {
    let left = bytes;
    let waitMs = isStuck ? 0 : MAX_WAIT_MS;
    while (left.length > 0 && !isGone) {
      try {
        left = left.subarray(write(left));
      } catch (error) {
        // If the reader has closed, the process continues without a log.
        isGone = (error as NodeJS.ErrnoException).code !== 'EAGAIN';
        isStuck = !isGone && waitMs === 0;
        if (isStuck) return left;
        if (!isGone) pause(1);
        waitMs -= 1;
      }
    }
    isStuck = false;
    return left;
  };
  return (line) => {
    if (isGone) return;
    if (rest.length > 0) rest = put(rest);
    const notice = lost === 0 || rest.length > 0 ? '' : lostLine(lost);
    const bytes = Buffer.from(notice + line);
    const left = rest.length > 0 ? bytes : put(bytes);
    if (left.length === bytes.length) {
      lost += 1;
    } else {
      lost = 0;
      rest = left;
    }
  };
}

export function standardError(lostLine: (count: number) => string): (line: string) => void {
  // Opening the stream makes a pipe non-blocking; otherwise a full one would stop the process.
  const { fd } = process.stderr;
  const cell = new Int32Array(new SharedArrayBuffer(4));
  return lineWriter({
    write: (bytes) => writeSync(fd, bytes),
    pause: (ms) => void Atomics.wait(cell, 0, 0, ms),
    lostLine,
  });
}
