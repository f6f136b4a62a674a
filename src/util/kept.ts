const EMPTY = Buffer.alloc(0);

/**
 * Joins pieces into a buffer for long-term use. Node carves small buffers out of a shared one, so a single long-lived
 * buffer would keep the memory of many short-lived ones.
 */
export function kept(pieces: readonly Uint8Array[]): Buffer {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (length === 0) return EMPTY;
  const joined = Buffer.allocUnsafeSlow(length);
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined;
}
