import type { FfiModule } from './library.ts';

/**
 * Memory whose address the kernel is given.
 *
 * The collector knows nothing of addresses. So an address is never kept without its memory: it lives
 * in here beside the buffer, and whoever holds the object keeps both. (A structure in memory that
 * points to other memory, as `msghdr` does, needs somebody who holds that, too.)
 *
 * The buffer is an ArrayBuffer of its own: small typed arrays and Node's pooled buffers may lie in
 * memory that moves or is shared.
 */
export class Pinned {
  readonly length: number;
  readonly bytes: Uint8Array;
  readonly view: DataView;
  readonly #address: bigint;

  private constructor(ffi: FfiModule, length: number) {
    const memory = new ArrayBuffer(length);
    this.length = length;
    this.bytes = new Uint8Array(memory);
    this.view = new DataView(memory);
    this.#address = ffi.getRawPointer(memory);
  }

  static alloc(ffi: FfiModule, length: number): Pinned {
    return new Pinned(ffi, length);
  }

  /** For this folder only. */
  static addressOf(pinned: Pinned): bigint {
    return pinned.#address;
  }
}

/** The address of a byte of pinned memory. For this folder only. */
export function addressOf(pinned: Pinned, offset = 0): bigint {
  const address = Pinned.addressOf(pinned);
  return offset === 0 ? address : address + BigInt(offset);
}
