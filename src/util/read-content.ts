import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { KpngError, type ErrorCode } from '../errors.ts';
import { formatBytes } from './bytes.ts';

/** The name of a file in messages, and its error codes. */
export interface FileKind {
  /** Such as `the state file`. */
  readonly name: string;
  readonly unreadable: ErrorCode;
  readonly tooLarge: ErrorCode;
}

export interface FileContent {
  /** With a buffer of its own. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Equal for equal bytes. */
  readonly digest: string;
}

/** Amount read and hashed without yielding. Bytes. */
const PIECE = 1024 * 1024;

/**
 * Reads a regular file of not more than `maxBytes`. What another program writes to it meanwhile may be in the content or
 * not. Never rejects.
 */
export async function readContent(
  path: string,
  maxBytes: number,
  { name, unreadable, tooLarge }: FileKind,
): Promise<FileContent | KpngError> {
  const fail = (code: ErrorCode, why: string, cause?: unknown): KpngError =>
    new KpngError(code, `cannot read ${name} ${path}: ${why}`, { cause });
  let handle: FileHandle | undefined;
  try {
    // Without O_NONBLOCK, opening a named pipe would block until there is a writer.
    handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    const stats = await handle.stat();
    if (stats.isDirectory()) return fail(unreadable, 'it is a directory');
    if (!stats.isFile()) return fail(unreadable, 'it is not a regular file');
    if (stats.size > maxBytes) {
      return fail(tooLarge, `it is larger than ${formatBytes(maxBytes)}`);
    }
    const hash = createHash('sha256');
    const bytes = new Uint8Array(stats.size);
    let length = 0;
    while (length < bytes.length) {
      const piece = bytes.subarray(length, length + PIECE);
      const { bytesRead } = await handle.read(piece);
      if (bytesRead === 0) break;
      hash.update(piece.subarray(0, bytesRead));
      length += bytesRead;
    }
    return { bytes: bytes.subarray(0, length), digest: hash.digest('hex') };
  } catch (error) {
    return fail(unreadable, fileErrorText(error), error);
  } finally {
    await handle?.close();
  }
}

const WORDS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file (ENOENT)',
  ENOTDIR: 'a part of the path is not a directory (ENOTDIR)',
  EACCES: 'permission denied (EACCES)',
  EISDIR: 'it is a directory',
  ELOOP: 'its symbolic links form a loop (ELOOP)',
};

/** Why a file cannot be read; the caller names the file. */
export function fileErrorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code = '' } = error as NodeJS.ErrnoException;
  return WORDS[code] ?? error.message;
}
