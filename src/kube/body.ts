import type { IncomingMessage } from 'node:http';
import { ByteBuffer } from '../util/byte-buffer.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { KubeFailure } from './failure.ts';

export interface ReadLimits {
  /** Maximum pause. Milliseconds. */
  readonly silenceMs: number;
  /** Whether a longer pause is a failure, read when there is one. Default: always. */
  readonly mustSpeak?: () => boolean;
  /** For the whole body. Milliseconds. */
  readonly totalMs: number;
  /** Whether reaching that ends the body normally. Default: it rejects. */
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
  { silenceMs, mustSpeak = () => true, totalMs, lateIsEnd = false }: ReadLimits,
  clock: Clock,
  onPiece: (piece: Buffer) => void,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const endAt = clock.now() + totalMs;
  let last = clock.now();
  let timer: Timer | undefined;
  const fail = (kind: 'silent' | 'cut', problem: string, cause?: unknown): void =>
    reject(new KubeFailure(kind, `${what}: ${problem}`, { cause }));
  // One timer for all pieces, set again when it fires.
  const watchTime = (): void => {
    const now = clock.now();
    const dueAt = Math.min(endAt, (mustSpeak() ? last : now) + silenceMs);
    if (now < dueAt) timer = clock.setTimer(dueAt - now, watchTime);
    else if (now < endAt) fail('silent', `no data for ${Math.round(silenceMs / 1000)} s`);
    else if (lateIsEnd) resolve();
    else fail('silent', `not complete after ${Math.round(totalMs / 1000)} s`);
  };
  watchTime();
  body.on('data', (piece: Buffer) => {
    last = clock.now();
    try {
      onPiece(piece);
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

/** A whole body; undefined when it is larger than the limit. Rejects as `readPieces`. */
export async function readBody(
  what: string,
  body: IncomingMessage,
  { maxBytes, ...limits }: ReadLimits & { readonly maxBytes: number },
  clock: Clock,
): Promise<string | undefined> {
  const bytes = new ByteBuffer();
  const tooLong = new Error('too long');
  try {
    await readPieces(what, body, limits, clock, (piece) => {
      if (bytes.length + piece.length > maxBytes) throw tooLong;
      bytes.append(piece);
    });
  } catch (error) {
    if (error === tooLong) return undefined;
    throw error;
  }
  return bytes.take().toString('utf8');
}

/** `what`: where the text is from, for the KubeFailure `malformed`. */
export function parseJson(json: string, what: string): unknown {
  try {
    return JSON.parse(json);
  } catch (cause) {
    throw new KubeFailure('malformed', `${what} is not JSON`, { cause });
  }
}

const NEWLINE = 0x0a;

/**
 * Passes on the lines that each piece of a body completes, without line ends and empty ones. Rejects as `readPieces`,
 * with `malformed` if a line exceeds the limit, and with `cut` if the last one has no end.
 */
export async function readLines(
  what: string,
  body: IncomingMessage,
  { maxBytes, ...limits }: ReadLimits & { readonly maxBytes: number },
  clock: Clock,
  onLines: (lines: readonly string[]) => void,
): Promise<void> {
  const begun = new ByteBuffer();
  const append = (piece: Buffer): void => {
    if (begun.length + piece.length > maxBytes) {
      throw new KubeFailure('malformed', `${what}: a line of more than ${maxBytes} bytes`);
    }
    begun.append(piece);
  };
  await readPieces(what, body, limits, clock, (piece) => {
    const lines: string[] = [];
    let start = 0;
    for (let end = piece.indexOf(NEWLINE); end !== -1; end = piece.indexOf(NEWLINE, start)) {
      append(piece.subarray(start, end));
      lines.push(begun.take().toString('utf8'));
      start = end + 1;
    }
    append(piece.subarray(start));
    onLines(lines.filter((line) => line.trim() !== ''));
  });
  if (begun.length > 0) throw new KubeFailure('cut', `${what}: ended within an event`);
}
