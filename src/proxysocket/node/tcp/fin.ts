import type { Socket } from 'node:net';

const EMPTY = Buffer.alloc(0);

/**
 * Before libuv 1.52 (Node 22 has 1.51), a reset that arrives behind data that was not read yet is
 * reported as the end of the stream. Taken for a FIN, it would make a broken transfer look complete.
 */
export const RESET_MAY_LOOK_LIKE_FIN = olderThan(process.versions.uv ?? '', 1, 52);

/**
 * Calls back when the end of a socket's stream is known to be a FIN.
 *
 * Where there is doubt, it writes nothing to the socket, which makes the kernel tell; a reset then comes
 * as the socket's 'error'. A socket that cannot be written to any more, or still has to write
 * other things, is taken at its word: for the one it does not matter, the other will find out.
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

/** Whether a version as `1.51.0` is older than `major.minor`. */
export function olderThan(version: string, major: number, minor: number): boolean {
  const [a = 0, b = 0] = version.split('.').map(Number);
  return a < major || (a === major && b < minor);
}
