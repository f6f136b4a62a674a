import type { Socket } from 'node:net';

export const EMPTY = Buffer.alloc(0);

/**
 * Before libuv 1.52 (Node 22 has 1.51), a reset that arrives behind data that was not read yet is
 * reported as the end of the stream. Taken for a FIN, it would make a broken transfer look complete.
 */
export const RESET_MAY_LOOK_LIKE_FIN = olderThan(process.versions.uv ?? '', 1, 52);

/**
 * Calls back when the end of a socket's stream is known to be a FIN.
 *
 * In doubt, it writes nothing to the socket, which makes the kernel report it; a reset then comes as the socket's
 * 'error'. A socket that cannot be written to any more, or still has to write other data, is trusted: for the first
 * it does not matter, the second will find out.
 */
export function whenFin(
  socket: Socket,
  callback: () => void,
  doubtful = RESET_MAY_LOOK_LIKE_FIN,
): void {
  if (!doubtful || !socket.writable || socket.writableLength > 0) {
    callback();
    return;
  }
  socket.write(EMPTY, (error) => {
    if (!(error instanceof Error)) callback();
  });
}

/** Whether a version such as `1.51.0` is older than `major.minor`. */
export function olderThan(version: string, major: number, minor: number): boolean {
  const [a = 0, b = 0] = version.split('.').map(Number);
  return a < major || (a === major && b < minor);
}

/**
 * Ends a socket with a reset (RST) instead of a FIN.
 *
 * `resetAndDestroy` alone is not enough. Between `end()` and 'finish' libuv refuses the reset with EINVAL, and Node
 * then forgets the handle without closing it, so the reset waits for 'finish'. On a connecting socket it would wait
 * for the connection.
 */
export function resetSocket(socket: Socket): void {
  if (socket.destroyed) return;
  if (socket.connecting) {
    socket.destroy();
  } else if (socket.writableEnded && !socket.writableFinished && socket.writableLength === 0) {
    socket.once('finish', () => resetSocket(socket));
  } else {
    socket.resetAndDestroy();
  }
}
