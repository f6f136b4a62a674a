import type { Library } from './library.ts';
import { addressOf, type Pinned } from './memory.ts';

/** Reading and writing. Results are byte counts, or negative error numbers. */
export class Streams {
  readonly #c: Library['c'];
  readonly #errno: Int32Array;

  constructor(lib: Library) {
    this.#c = lib.c;
    this.#errno = lib.errno;
  }

  /** 0 is the end of the stream. */
  read(fd: number, into: Pinned, length: number, offset = 0): number {
    const count = this.#c.read(fd, addressOf(into, offset), length);
    return count < 0 ? -(this.#errno[0] ?? 0) : count;
  }

  /** May take fewer bytes than asked. Node ignores SIGPIPE, so a closed peer is only an error number. */
  write(fd: number, from: Pinned, length: number, offset = 0): number {
    const count = this.#c.write(fd, addressOf(from, offset), length);
    return count < 0 ? -(this.#errno[0] ?? 0) : count;
  }
}
