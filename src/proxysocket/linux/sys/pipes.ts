import { F_SETPIPE_SZ, O_CLOEXEC, O_NONBLOCK, SPLICE_F_MOVE, SPLICE_F_NONBLOCK } from './abi.ts';
import type { DescriptorLedger } from './ledger.ts';
import type { Library } from './library.ts';
import { Pinned } from './memory.ts';

/** Capacity of a pipe. Unprivileged users may have no larger ones (`fs.pipe-max-size`). */
export const PIPE_BYTES = 1024 * 1024;
const FLAGS = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;

/** Bytes pass through it from one socket to another. */
export interface Pipe {
  readonly readFd: number;
  readonly writeFd: number;
}

/**
 * Pipes between sockets: the kernel hands its own pages from one to the other without copying them.
 *
 * Each fill and each emptying is a call of its own, so a pipe pays off only for large amounts.
 */
export class Pipes {
  readonly #c: Library['c'];
  readonly #ledger: DescriptorLedger;
  readonly #pair: Pinned;

  constructor({ ffi, c }: Library, ledger: DescriptorLedger) {
    this.#c = c;
    this.#ledger = ledger;
    this.#pair = new Pinned(ffi, 8);
  }

  /**
   * Undefined where there is no descriptor left, or no pipe of full size: beyond a limit for each user, pipes are
   * small.
   */
  open(): Pipe | undefined {
    if (this.#c.pipe2(this.#pair.address, O_NONBLOCK | O_CLOEXEC) < 0) return undefined;
    const readFd = this.#pair.view.getInt32(0, true);
    const writeFd = this.#pair.view.getInt32(4, true);
    this.#ledger.opened(readFd);
    this.#ledger.opened(writeFd);
    const pipe = { readFd, writeFd };
    if (this.#c.fcntl(writeFd, F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_BYTES) return pipe;
    this.close(pipe);
    return undefined;
  }

  close({ readFd, writeFd }: Pipe): void {
    for (const fd of [readFd, writeFd]) {
      this.#ledger.closed(fd);
      this.#c.close(fd);
    }
  }

  /** Takes what a socket has received: how many bytes, 0 at the end of the stream, or a negative error number. */
  fill(pipe: Pipe, from: number): number {
    return this.#c.splice(from, 0n, pipe.writeFd, 0n, PIPE_BYTES, FLAGS);
  }

  /**
   * Moves up to `length` bytes from the pipe to a socket, until it is full: returns how many, or a negative error number
   * if there were none.
   */
  empty(pipe: Pipe, to: number, length: number): number {
    let sum = 0;
    // One call may stop before the socket is full, and then no event would report its room.
    while (sum < length) {
      const taken = this.#c.splice(pipe.readFd, 0n, to, 0n, length - sum, FLAGS);
      if (taken <= 0) return sum > 0 ? sum : taken;
      sum += taken;
    }
    return sum;
  }
}
