import { ByteBuffer } from '../util/byte-buffer.ts';

const NEWLINE = 0x0a;

/** Cuts a stream of bytes into lines of a bounded length. */
export class LineSplitter {
  readonly #maxBytes: number;
  /** The beginning of a line whose end has not come. */
  readonly #begun = new ByteBuffer();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of a line that has not ended. */
  get pending(): number {
    return this.#begun.length;
  }

  /**
   * The lines that a chunk completes, without their ends; empty ones are left out. Throws a RangeError
   * for a line above the limit, ended or not; the splitter is of no use then.
   */
  push(chunk: Buffer): string[] {
    const lines: string[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      const line = this.#end(chunk.subarray(start, end));
      if (line.trim() !== '') lines.push(line);
      start = end + 1;
    }
    const rest = chunk.subarray(start);
    this.#check(rest);
    if (rest.length > 0) this.#begun.append(rest);
    return lines;
  }

  #end(piece: Buffer): string {
    this.#check(piece);
    if (this.#begun.length === 0) return piece.toString('utf8');
    this.#begun.append(piece);
    return this.#begun.take().toString('utf8');
  }

  #check(piece: Buffer): void {
    if (this.#begun.length + piece.length <= this.#maxBytes) return;
    throw new RangeError(`a line of more than ${this.#maxBytes} bytes`);
  }
}
