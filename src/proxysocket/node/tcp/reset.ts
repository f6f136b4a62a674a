import type { Socket } from 'node:net';

/**
 * Ends a socket with a reset (RST) instead of a FIN.
 *
 * `resetAndDestroy` alone is not enough. While the socket's own shutdown is on its way (between
 * `end()` with nothing left to write and 'finish'), libuv refuses the reset with EINVAL, and Node
 * then forgets the handle without closing it: the descriptor is lost for good. So the reset waits
 * for 'finish', which comes in the next turn of the loop. And on a socket that is still connecting it
 * would wait for the connection, which may never come.
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
