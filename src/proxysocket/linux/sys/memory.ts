import type { FfiModule } from './library.ts';

/**
 * Memory whose address the kernel is given, which is kept only together with it: the garbage collector does not know
 * addresses. An ArrayBuffer of its own: small typed arrays and pooled buffers may move or be shared.
 */
export class Pinned {
  readonly length: number;
  readonly bytes: Uint8Array;
  readonly view: DataView;
  /** For system calls only. */
  readonly address: bigint;

  constructor(ffi: FfiModule, length: number) {
    const memory = new ArrayBuffer(length);
    this.length = length;
    this.bytes = new Uint8Array(memory);
    this.view = new DataView(memory);
    this.address = ffi.getRawPointer(memory);
  }
}

/** The address of a byte of pinned memory. For system calls only. */
export function addressOf({ address }: Pinned, offset = 0): bigint {
  return offset === 0 ? address : address + BigInt(offset);
}

/** Structures of one size, whose addresses are computed once. */
export class PinnedArray extends Pinned {
  readonly #addresses: readonly bigint[];

  constructor(ffi: FfiModule, count: number, size: number) {
    super(ffi, count * size);
    this.#addresses = Array.from({ length: count }, (_, index) => addressOf(this, index * size));
  }

  addressAt(index: number): bigint {
    return this.#addresses[index] ?? 0n;
  }
}

/** Descriptors that a worker thread has open, a byte each, in memory that outlives it: the pool closes them then. */
export class DescriptorLedger {
  readonly #open: Uint8Array;

  constructor(memory = ledgerMemory(1 << 16)) {
    this.#open = new Uint8Array(memory);
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

/** `limit`: the largest number of descriptors that the process may have. */
export function ledgerMemory(limit: number): SharedArrayBuffer {
  return new SharedArrayBuffer(Math.min(limit, MAX_DESCRIPTORS));
}

/** The kernel's own limit (`fs.nr_open`) unless it was raised. */
const MAX_DESCRIPTORS = 1 << 20;
