import { EFD_CLOEXEC, EFD_NONBLOCK } from './constants.ts';
import type { DescriptorLedger } from '../../core/descriptor-ledger.ts';
import { systemError } from './errno.ts';
import type { Library } from './library.ts';
import { addressOf, Pinned } from './memory.ts';

/**
 * An eventfd: wakes a thread that waits for events. Any thread can write to it, also with
 * `fs.writeSync`, eight bytes that are not all zero. Whoever writes to it also closes it.
 */
export class Wake {
  readonly fd: number;
  readonly #c: Library['c'];
  readonly #counter: Pinned;

  /** Throws the system's error. */
  constructor(lib: Library, ledger: DescriptorLedger) {
    this.#c = lib.c;
    this.#counter = Pinned.alloc(lib.ffi, 8);
    this.fd = this.#c.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (this.fd < 0) throw systemError(lib.errno[0] ?? 0, 'eventfd');
    ledger.opened(this.fd);
  }

  /** Takes the wake-up back, so that the descriptor is not readable any more. */
  drain(): void {
    this.#c.read(this.fd, addressOf(this.#counter), 8);
  }
}
