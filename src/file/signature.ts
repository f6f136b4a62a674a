import type { BigIntStats } from 'node:fs';

/**
 * A text that differs whenever a file was written to, renamed over or swapped, except for a write
 * of the same size within the tick of the file system's clock.
 */
export function signatureOf(stats: BigIntStats): string {
  const { dev, ino, size, mtimeNs, ctimeNs } = stats;
  return `${dev}:${ino}:${size}:${mtimeNs}:${ctimeNs}`;
}

/** The system's code of an error, such as `ENOENT`; its message when it has none. */
export function causeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as NodeJS.ErrnoException;
  return code ?? error.message;
}
