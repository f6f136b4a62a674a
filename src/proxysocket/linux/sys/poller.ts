import type { DescriptorLedger } from './ledger.ts';
import {
  EPOLL_CLOEXEC,
  EPOLL_CTL_ADD,
  EPOLL_CTL_DEL,
  EPOLLERR,
  EPOLLET,
  EPOLLHUP,
  EPOLLIN,
  EPOLLOUT,
  EPOLLRDHUP,
  EFD_CLOEXEC,
  EFD_NONBLOCK,
  EPOLL_DATA_WORD,
  EPOLL_EVENT_WORDS,
  systemError,
} from './abi.ts';
import type { Library } from './library.ts';
import { addressOf, Pinned } from './memory.ts';

/** Events to wait for. Errors and hang-ups always come. */
export const INTEREST = {
  /** Readable, reported repeatedly while it lasts. */
  readable: EPOLLIN,
  writable: EPOLLOUT,
  /** The end of the stream only, once. */
  end: (EPOLLRDHUP | EPOLLET) >>> 0,
  /** Readable, writable and the end of the stream, reported once per change. */
  edges: (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) >>> 0,
} as const;

/** The masks that events come with. */
export const READY = {
  readable: EPOLLIN,
  writable: EPOLLOUT,
  /** An error, to be read from the socket. */
  error: EPOLLERR,
  /** Both directions are closed. */
  hangUp: EPOLLHUP,
  /** The peer's FIN has arrived, behind readable data. */
  peerClosed: EPOLLRDHUP,
} as const;

/** Waits for events of many descriptors. */
export class Poller {
  readonly fd: number;
  readonly #c: Library['c'];
  readonly #ledger: DescriptorLedger;
  readonly #capacity: number;
  readonly #events: Pinned;
  readonly #eventsAddress: bigint;
  readonly #words: Int32Array;
  readonly #change: Pinned;
  readonly #changeAddress: bigint;
  readonly #changeWords: Int32Array;

  /** `capacity`: events of one wait at most. Throws the system's error. */
  constructor(lib: Library, ledger: DescriptorLedger, capacity: number) {
    this.#c = lib.c;
    this.#ledger = ledger;
    this.#capacity = capacity;
    this.#events = Pinned.alloc(lib.ffi, capacity * EPOLL_EVENT_WORDS * 4);
    this.#eventsAddress = addressOf(this.#events);
    this.#words = new Int32Array(this.#events.bytes.buffer);
    this.#change = Pinned.alloc(lib.ffi, 16);
    this.#changeAddress = addressOf(this.#change);
    this.#changeWords = new Int32Array(this.#change.bytes.buffer);
    this.fd = this.#c.epoll_create1(EPOLL_CLOEXEC);
    if (this.fd < 0) throw systemError(-this.fd, 'epoll_create1');
    ledger.opened(this.fd);
  }

  /** Returns 0, or a negative errno. `mark` is returned with the events. 32 bits. */
  add(fd: number, interest: number, mark: number): number {
    return this.#control(EPOLL_CTL_ADD, fd, interest, mark);
  }

  /** Not needed before a close: closing a descriptor removes it. */
  remove(fd: number): number {
    return this.#control(EPOLL_CTL_DEL, fd, 0, 0);
  }

  /**
   * Blocks the thread until there are events or the time has expired (milliseconds; -1: no limit), and
   * returns how many there are. A signal ends it with 0.
   */
  wait(timeoutMs: number): number {
    const count = this.#c.epoll_wait(this.fd, this.#eventsAddress, this.#capacity, timeoutMs);
    return Math.max(0, count);
  }

  /** The descriptor of an event of the last wait. */
  descriptor(index: number): number {
    return this.#words[index * EPOLL_EVENT_WORDS + EPOLL_DATA_WORD] ?? -1;
  }

  /** The mark that the descriptor was added with. */
  mark(index: number): number {
    return this.#words[index * EPOLL_EVENT_WORDS + EPOLL_DATA_WORD + 1] ?? -1;
  }

  /** The readiness of an event of the last wait: bits of `READY`. */
  mask(index: number): number {
    return this.#words[index * EPOLL_EVENT_WORDS] ?? 0;
  }

  close(): void {
    this.#ledger.closed(this.fd);
    this.#c.close(this.fd);
  }

  #control(operation: number, fd: number, interest: number, mark: number): number {
    const words = this.#changeWords;
    words[0] = interest;
    words[EPOLL_DATA_WORD] = fd;
    words[EPOLL_DATA_WORD + 1] = mark;
    return this.#c.epoll_ctl(this.fd, operation, fd, this.#changeAddress);
  }
}

/**
 * An eventfd: wakes a thread that waits for events. Any thread can write to it, also with
 * `fs.writeSync`, eight bytes that are not all zero. The writer closes it.
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
    if (this.fd < 0) throw systemError(-this.fd, 'eventfd');
    ledger.opened(this.fd);
  }

  /** Clears the wake-up, so that the descriptor is no longer readable. */
  drain(): void {
    this.#c.read(this.fd, addressOf(this.#counter), 8);
  }
}
