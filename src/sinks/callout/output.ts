/** Collects a program's output, up to a limit. */
export class Output {
  readonly #max: number;
  readonly #pieces: Buffer[] = [];
  #size = 0;

  /** `max` in bytes. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Returns whether it is still within the limit. The excess is dropped. */
  add(piece: Buffer): boolean {
    this.#size += piece.length;
    if (this.#size > this.#max) return false;
    this.#pieces.push(piece);
    return true;
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#pieces);
  }
}

/** Keeps the end of a program's output. */
export class Tail {
  readonly #max: number;
  #bytes: Buffer = Buffer.alloc(0);
  #cut = false;

  /** `max` in bytes. */
  constructor(max: number) {
    this.#max = max;
  }

  add(piece: Buffer): void {
    const all = Buffer.concat([this.#bytes, piece.subarray(-this.#max)]);
    this.#cut ||= this.#bytes.length + piece.length > this.#max;
    this.#bytes = all.subarray(-this.#max);
  }

  /** Trimmed; begins with an ellipsis if it was cut. */
  get text(): string {
    const text = this.#bytes.toString('utf8');
    // The cut may have split a character.
    return this.#cut ? `…${text.replace(/^\uFFFD+/, '').trim()}` : text.trim();
  }
}
