/**
 * Joins bytes as they arrive: a piece may be a single byte, and a Buffer for each would take hundreds of times its
 * size.
 */
export class ByteBuffer {
  #bytes = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  append(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#bytes.length, 256));
      this.#bytes.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** Returns everything received and starts over. */
  take(): Buffer {
    const taken = this.#bytes.subarray(0, this.#length);
    this.#bytes = Buffer.alloc(0);
    this.#length = 0;
    return taken;
  }
}

/**
 * Joins pieces into a buffer for long-term use. Node carves small buffers out of a shared one, so a single long-lived
 * buffer would keep the memory of many short-lived ones.
 */
export function kept(pieces: readonly Uint8Array[]): Buffer {
  return Buffer.from(new Uint8Array(Buffer.concat(pieces)).buffer);
}
