import type { Writable } from 'node:stream';
import { itemJson } from '../api/json.ts';
import type { LocalChange, LocalSink, LocalView } from '../store/local-view.ts';

/** Writes text; resolves when there is room for more. */
export type WriteText = (text: string) => Promise<void>;

/** Lines are collected up to about this many characters, so that a large state takes few writes. */
const CHUNK = 64 * 1024;

/**
 * Prints the whole state at every Sync as kpng-json does: one line of JSON for each service, in path order, without
 * separators between Syncs, and nothing for an empty state.
 */
export class JsonSink implements LocalSink {
  readonly #write: WriteText;

  constructor(write: WriteText) {
    this.#write = write;
  }

  async sync({ view }: LocalChange): Promise<void> {
    for (const piece of stateJson(view)) await this.#write(piece);
  }
}

/** The state as kpng-json prints it, in pieces of whole lines. */
export function* stateJson(view: LocalView): Generator<string, void, void> {
  let text = '';
  for (const { service, endpoints } of view.entries()) {
    text += `${itemJson(service, endpoints.values())}\n`;
    if (text.length < CHUNK) continue;
    yield text;
    text = '';
  }
  if (text !== '') yield text;
}

/**
 * Writes to a stream, usually standard output, one piece at a time.
 *
 * `onReaderGone` is called once when the reader of the stream has gone (EPIPE, as after `| head`). That is not an
 * error: the program should end normally, and later writes are dropped. Any other error rejects the write.
 */
export function streamWriter(
  stream: Writable,
  onReaderGone: () => void,
): (piece: string | Uint8Array) => Promise<void> {
  let gone = false;
  const readerGone = (error: Error): boolean => {
    if (!isReaderGone(error)) return false;
    const isFirst = !gone;
    gone = true;
    if (isFirst) onReaderGone();
    return true;
  };
  // Errors between writes matter only if the reader has closed.
  stream.on('error', readerGone);
  return async (piece) => {
    if (gone) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    stream.write(piece, (error) => (error && !readerGone(error) ? reject(error) : resolve()));
    await promise;
  };
}

/** Windows reports EOF instead of EPIPE. */
function isReaderGone(error: Error): boolean {
  return 'code' in error && (error.code === 'EPIPE' || error.code === 'EOF');
}
