/** As large as the largest read into the shared buffer. */
export const SHARED_BYTES = 64 * 1024;

/**
 * Where small reads are copied to before they are written.
 *
 * A chunk that the kernel takes at once, as it nearly always does, leaves its place to the next one:
 * no memory is allocated for it. A chunk that has to wait keeps its place, and the next one goes
 * behind it. A slab that is full is left to the chunks that still lie in it. A direction waits with
 * one chunk at most, so it holds on to one slab at most, whatever its peer does.
 */
export class Scratch {
  #slab = Buffer.allocUnsafeSlow(SHARED_BYTES);
  #offset = 0;

  /** A copy of the first `length` bytes, good until the next call unless it is kept. */
  copy(source: Buffer, length: number): Buffer {
    if (this.#offset + length > this.#slab.length) {
      this.#slab = Buffer.allocUnsafeSlow(SHARED_BYTES);
      this.#offset = 0;
    }
    const end = this.#offset + length;
    source.copy(this.#slab, this.#offset, 0, length);
    return this.#slab.subarray(this.#offset, end);
  }

  /** The last copy, of `length` bytes, is still needed. */
  keep(length: number): void {
    this.#offset += length;
  }
}
