const NEWLINE = 0x0a;

/** Cuts a stream of bytes into lines of a bounded length. */
export class LineSplitter {
  readonly #maxBytes: number;
  /** The beginning of a line whose end has not come, in pieces. */
  #pieces: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of a line that has not ended. */
  get pending(): number {
    return this.#bytes;
  }

  /**
   * The lines that a chunk completes, without their ends; empty ones are left out. Throws a RangeError
   * for a line above the limit, ended or not; the splitter is of no use then.
   */
  push(chunk: Buffer): string[] {
    const lines: string[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      this.#keep(chunk.subarray(start, end));
      const line = this.#take();
      if (line.trim() !== '') lines.push(line);
      start = end + 1;
    }
    this.#keep(chunk.subarray(start));
    return lines;
  }

  #keep(piece: Buffer): void {
    if (piece.length === 0) return;
    this.#bytes += piece.length;
    if (this.#bytes > this.#maxBytes) {
      throw new RangeError(`a line of more than ${this.#maxBytes} bytes`);
    }
    this.#pieces.push(piece);
  }

  #take(): string {
    const [first, ...rest] = this.#pieces;
    this.#pieces = [];
    this.#bytes = 0;
    if (first === undefined) return '';
    return (rest.length === 0 ? first : Buffer.concat([first, ...rest])).toString('utf8');
  }
}
