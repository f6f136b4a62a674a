import type { IncomingMessage } from 'node:http';
import { ByteBuffer } from '../util/byte-buffer.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { KubeFailure } from './failure.ts';

export interface ReadLimits {
  /** Maximum pause, read at each check. Milliseconds. */
  readonly silenceMs: () => number;
  /** For the whole body. Milliseconds. */
  readonly totalMs: number;
  /** Whether a timeout ends the body normally. Default: it rejects. */
  readonly lateIsEnd?: boolean;
}

/**
 * Passes on the pieces of a body as they arrive, and resolves at its end. Rejects with what `onPiece` throws, or with a
 * KubeFailure: `silent` if the body or a pause in it takes too long, `cut` if the connection is lost. The body is
 * destroyed then.
 *
 * Pieces are not awaited one by one: with one-byte chunks that would cost more than everything else.
 */
export async function readPieces(
  what: string,
  body: IncomingMessage,
  { silenceMs, totalMs, lateIsEnd = false }: ReadLimits,
  clock: Clock,
  onPiece: (piece: Buffer) => void,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const startedAt = clock.now();
  let last = startedAt;
  const seconds = (ms: number): number => Math.round(ms / 1000);
  const fail = (kind: 'silent' | 'cut', problem: string, cause?: unknown): void =>
    reject(new KubeFailure(kind, `${what}: ${problem}`, { cause }));
  let dueAt = 0;
  let timer: Timer | undefined;
  // One timer for all pieces: it is set again when it fires, or when less time is left.
  const watchTime = (): void => {
    const now = clock.now();
    dueAt = Math.min(startedAt + totalMs, last + silenceMs());
    timer?.cancel();
    timer = clock.setTimer(Math.max(0, dueAt - now), () => {
      const at = clock.now();
      if (at < startedAt + totalMs && at < last + silenceMs()) watchTime();
      else if (at < startedAt + totalMs) {
        fail('silent', `no data for ${seconds(silenceMs())} s`);
      } else if (lateIsEnd) resolve();
      else fail('silent', `not complete after ${seconds(totalMs)} s`);
    });
  };
  watchTime();
  body.on('data', (piece: Buffer) => {
    last = clock.now();
    try {
      onPiece(piece);
      if (last + silenceMs() < dueAt) watchTime();
    } catch (error) {
      reject(error);
      body.destroy();
    }
  });
  body.once('end', resolve);
  // It stays: an error may come after the end. Node reports every cause as `aborted`.
  body.on('error', (cause) => fail('cut', 'the connection was lost', cause));
  body.once('close', () => fail('cut', 'the connection was lost'));
  try {
    await promise;
  } finally {
    timer?.cancel();
    body.destroy();
  }
}

export interface BodyLimits extends Pick<ReadLimits, 'totalMs'> {
  readonly maxBytes: number;
  /** Maximum pause. Milliseconds. */
  readonly silenceMs: number;
}

/** A whole body; undefined when it is larger than the limit. Rejects as `readPieces`. */
export async function readBody(
  what: string,
  body: IncomingMessage,
  { maxBytes, silenceMs, totalMs }: BodyLimits,
  clock: Clock,
): Promise<string | undefined> {
  const bytes = new ByteBuffer();
  const tooLong = new Error('too long');
  try {
    await readPieces(what, body, { silenceMs: () => silenceMs, totalMs }, clock, (piece) => {
      if (bytes.length + piece.length > maxBytes) throw tooLong;
      bytes.append(piece);
    });
  } catch (error) {
    if (error === tooLong) return undefined;
    throw error;
  }
  return bytes.take().toString('utf8');
}

const NEWLINE = 0x0a;

/** Splits a stream of bytes into lines of limited length. `what`: for errors. */
export class LineSplitter {
  readonly #what: string;
  readonly #maxBytes: number;
  readonly #begun = new ByteBuffer();

  constructor(what: string, maxBytes: number) {
    this.#what = what;
    this.#maxBytes = maxBytes;
  }

  /** Bytes of a line that has not ended. */
  get pending(): number {
    return this.#begun.length;
  }

  /**
   * The lines completed by a chunk, without line ends; empty ones are left out. Throws a KubeFailure if a line exceeds
   * the limit; the splitter must not be used afterwards.
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
    const message = `${this.#what}: a line of more than ${this.#maxBytes} bytes`;
    throw new KubeFailure('malformed', message);
  }
}
