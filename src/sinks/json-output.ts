import type { Writable } from 'node:stream';

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
  const readerGone = (): void => {
    if (gone) return;
    gone = true;
    onReaderGone();
  };
  // Errors between writes matter only if the reader has closed.
  stream.on('error', (error) => {
    if (isReaderGone(error)) readerGone();
  });
  return (piece) => {
    if (gone) return Promise.resolve();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    stream.write(piece, (error) => {
      if (!error) return resolve();
      if (!isReaderGone(error)) return reject(error);
      readerGone();
      resolve();
    });
    return promise;
  };
}

/** Windows reports EOF instead of EPIPE. */
function isReaderGone(error: Error): boolean {
  return 'code' in error && (error.code === 'EPIPE' || error.code === 'EOF');
}
