import * as k from './abi.ts';
import { Pinned } from './memory.ts';
import type { Sys } from './sys.ts';

/** Events to wait for. Errors and hang-ups always come. */
export const INTEREST = {
  /** Readable, reported repeatedly while it lasts. */
  readable: k.EPOLLIN,
  /** The end of the stream only, once. */
  end: (k.EPOLLRDHUP | k.EPOLLET) >>> 0,
  /** Readable, writable and the end of the stream, reported once per change. */
  edges: (k.EPOLLIN | k.EPOLLOUT | k.EPOLLRDHUP | k.EPOLLET) >>> 0,
} as const;

/** Events of one wait at most. */
const AT_ONCE = 256;

export class Poller {
  readonly fd: number;
  readonly #sys: Sys;
  readonly #events: Pinned;
  readonly #words: Int32Array;
  readonly #change: Pinned;
  readonly #changeWords: Int32Array;

  /** Throws the system's error. */
  constructor(sys: Sys) {
    this.#sys = sys;
    this.#events = new Pinned(sys.ffi, AT_ONCE * k.EPOLL_EVENT_WORDS * 4);
    this.#words = new Int32Array(this.#events.bytes.buffer);
    this.#change = new Pinned(sys.ffi, 16);
    this.#changeWords = new Int32Array(this.#change.bytes.buffer);
    this.fd = sys.c.epoll_create1(k.EPOLL_CLOEXEC);
    if (this.fd < 0) throw k.systemError(-this.fd, 'epoll_create1');
    sys.ledger.opened(this.fd);
  }

  /** Returns 0, or a negative errno. `mark` is returned with the events. 32 bits. */
  add(fd: number, interest: number, mark: number): number {
    return this.#control(k.EPOLL_CTL_ADD, fd, interest, mark);
  }

  /** Not needed before a close: closing a descriptor removes it. */
  remove(fd: number): number {
    return this.#control(k.EPOLL_CTL_DEL, fd, 0, 0);
  }

  /** Waits for events, up to `timeoutMs` (-1: no limit). Returns their number; 0 after a signal. */
  wait(timeoutMs: number): number {
    const { address } = this.#events;
    return Math.max(0, this.#sys.c.epoll_wait(this.fd, address, AT_ONCE, timeoutMs));
  }

  descriptor(index: number): number {
    return this.#words[index * k.EPOLL_EVENT_WORDS + k.EPOLL_DATA_WORD] ?? -1;
  }

  mark(index: number): number {
    return this.#words[index * k.EPOLL_EVENT_WORDS + k.EPOLL_DATA_WORD + 1] ?? -1;
  }

  /** The readiness of an event of the last wait: bits such as `EPOLLIN`. */
  mask(index: number): number {
    return this.#words[index * k.EPOLL_EVENT_WORDS] ?? 0;
  }

  close(): void {
    this.#sys.close(this.fd);
  }

  #control(operation: number, fd: number, interest: number, mark: number): number {
    const words = this.#changeWords;
    words[0] = interest;
    words[k.EPOLL_DATA_WORD] = fd;
    words[k.EPOLL_DATA_WORD + 1] = mark;
    return this.#sys.c.epoll_ctl(this.fd, operation, fd, this.#change.address);
  }
}

/**
 * Opens an eventfd, which wakes a thread that waits for events. Any thread can write to it, also with `fs.writeSync`,
 * eight bytes that are not all zero; the writer closes it. Throws the system's error.
 */
export function openWake({ c, ledger }: Sys): number {
  const fd = c.eventfd(0, k.EFD_CLOEXEC | k.EFD_NONBLOCK);
  if (fd < 0) throw k.systemError(-fd, 'eventfd');
  ledger.opened(fd);
  return fd;
}
