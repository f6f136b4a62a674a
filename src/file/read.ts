import { hash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { KpngError } from '../errors.ts';
import { formatBytes } from '../util/bytes.ts';
import { causeOf, signatureOf } from './signature.ts';

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
