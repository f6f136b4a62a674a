import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { constants, type BigIntStats } from 'node:fs';
import { open } from 'node:fs/promises';
import { KpngError } from '../errors.ts';
import { formatBytes } from '../util/bytes.ts';
import { positionAt, type Problem } from './problem.ts';

/** A file's content, as far as can be told of a file that others write to. */
export interface FileContent {
  readonly bytes: Uint8Array;
  /** Equal for equal bytes. */
  readonly digest: string;
  /** Of the file that was read. */
  readonly signature: string;
  /** Whether nobody wrote to the file while it was read. */
  readonly settled: boolean;
}

/**
 * Reads a regular file of not more than `maxBytes`.
 *
 * The error is KPNG_STATE_FILE_READ when that is not possible, and KPNG_STATE_FILE_INVALID when the
 * file is too large. Never rejects.
 */
export async function readContent(
  path: string,
  maxBytes: number,
): Promise<FileContent | KpngError> {
  try {
    return await read(path, maxBytes);
  } catch (error) {
    if (error instanceof KpngError) return error;
    return readError(path, describeCause(causeOf(error)), error);
  }
}

async function read(path: string, maxBytes: number): Promise<FileContent> {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    const before = await handle.stat({ bigint: true });
    if (before.isDirectory()) throw readError(path, 'it is a directory');
    if (!before.isFile()) throw readError(path, 'it is not a regular file');
    if (before.size > BigInt(maxBytes)) throw tooLarge(path, maxBytes);
    const bytes = await handle.readFile();
    if (bytes.length > maxBytes) throw tooLarge(path, maxBytes);
    const after = await handle.stat({ bigint: true });
    const signature = signatureOf(after);
    return {
      bytes,
      digest: hash('sha256', bytes),
      signature,
      settled: signature === signatureOf(before) && BigInt(bytes.length) === after.size,
    };
  } finally {
    await handle.close();
  }
}

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

function readError(path: string, why: string, cause?: unknown): KpngError {
  return new KpngError('KPNG_STATE_FILE_READ', `cannot read the state file ${path}: ${why}`, {
    cause,
  });
}

function tooLarge(path: string, maxBytes: number): KpngError {
  const limit = formatBytes(maxBytes);
  return new KpngError('KPNG_STATE_FILE_INVALID', `${path}: the file is larger than ${limit}`);
}

const CAUSES: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file (ENOENT)',
  ENOTDIR: 'a part of the path is not a directory (ENOTDIR)',
  EACCES: 'permission denied (EACCES)',
  EISDIR: 'it is a directory',
  ELOOP: 'its symbolic links lead in a circle (ELOOP)',
};

function describeCause(cause: string): string {
  return CAUSES[cause] ?? cause;
}

/** The text of a file, or why it has none. */
export type Decoded =
  { readonly ok: true; readonly text: string } | { readonly ok: false; readonly problem: Problem };

/** Decodes UTF-8, with or without a byte order mark. */
export function decodeText(bytes: Uint8Array): Decoded {
  const text = new TextDecoder().decode(bytes);
  if (isUtf8(bytes)) return { ok: true, text };
  const at = positionAt(text, text.indexOf('\uFFFD'));
  return { ok: false, problem: { ...at, path: '', message: 'the file is not UTF-8 text' } };
}
