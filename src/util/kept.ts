/** Of nothing. */
const EMPTY = Buffer.alloc(0);

/**
 * Joins pieces into a buffer that is kept for long. Node cuts small buffers from a larger one that lives as long as
 * any of them; one long-lived buffer among many short-lived ones would keep all their memory.
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
