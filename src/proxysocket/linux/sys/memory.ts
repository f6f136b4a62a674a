import { SOCKADDR_BYTES } from './abi.ts';
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

const NAMES_PER_SLAB = 512;

/** The address of a peer, in memory that the kernel may read until it is released. */
export class PeerName {
  readonly memory: Pinned;
  readonly offset: number;
  readonly #address: bigint;

  constructor(memory: Pinned, offset: number) {
    this.memory = memory;
    this.offset = offset;
    this.#address = addressOf(memory, offset);
  }

  /** For this folder only. */
  static addressOf(name: PeerName): bigint {
    return name.#address;
  }
}

/** Memory for the addresses of many peers: a small object for each instead of a buffer. */
export class PeerNames {
  readonly #ffi: FfiModule;
  readonly #free: PeerName[] = [];

  constructor(ffi: FfiModule) {
    this.#ffi = ffi;
  }

  /** Keeps a copy of the address at `offset` of some memory. */
  acquire(from: Pinned, offset: number): PeerName {
    if (this.#free.length === 0) this.#grow();
    const name = this.#free.pop();
    if (name === undefined) throw new RangeError('no name is free');
    const { memory } = name;
    const source = from.bytes.subarray(offset, offset + SOCKADDR_BYTES);
    memory.bytes.set(source, name.offset);
    return name;
  }

  /** The name must not be used after this. */
  release(name: PeerName): void {
    this.#free.push(name);
  }

  #grow(): void {
    const slab = Pinned.alloc(this.#ffi, NAMES_PER_SLAB * SOCKADDR_BYTES);
    for (let index = NAMES_PER_SLAB - 1; index >= 0; index -= 1) {
      this.#free.push(new PeerName(slab, index * SOCKADDR_BYTES));
    }
  }
}
