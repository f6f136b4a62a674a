/**
 * Which descriptors a worker thread has open, in memory that outlives it.
 *
 * A descriptor belongs to the process, not to the thread that opened it with a system call. When a
 * worker dies, the pool closes what is left. One byte for each descriptor: 1 while it is
 * open.
 */
export class DescriptorLedger {
  readonly #open: Uint8Array;

  constructor(memory: SharedArrayBuffer) {
    this.#open = new Uint8Array(memory);
  }

  /** `limit`: the largest number of descriptors that the process may have. */
  static create(limit: number): DescriptorLedger {
    return new DescriptorLedger(new SharedArrayBuffer(Math.min(limit, MAX_DESCRIPTORS)));
  }

  get memory(): SharedArrayBuffer {
    return this.#open.buffer as SharedArrayBuffer;
  }

  opened(fd: number): void {
    this.#open[fd] = 1;
  }

  closed(fd: number): void {
    this.#open[fd] = 0;
  }

  /** Those that are open, in ascending order. */
  list(): number[] {
    const list: number[] = [];
    for (let fd = this.#open.indexOf(1); fd !== -1; fd = this.#open.indexOf(1, fd + 1)) {
      list.push(fd);
    }
    return list;
  }
}

/** The kernel's own limit (`fs.nr_open`) unless it was raised. */
const MAX_DESCRIPTORS = 1 << 20;
