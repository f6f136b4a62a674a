import type { FfiModule } from './library.ts';

/**
 * Memory whose address the kernel is given. The garbage collector does not know addresses, so an address is kept only
 * together with its memory; a structure that points to other memory, as `msghdr` does, needs an owner of that, too.
 *
 * The buffer is an ArrayBuffer of its own: small typed arrays and pooled buffers may move or be shared.
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

  /** `size` of each, in bytes. */
  constructor(ffi: FfiModule, count: number, size: number) {
    super(ffi, count * size);
    this.#addresses = Array.from({ length: count }, (_, index) => addressOf(this, index * size));
  }

  addressAt(index: number): bigint {
    return this.#addresses[index] ?? 0n;
  }
}
