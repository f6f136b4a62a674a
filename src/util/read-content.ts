import { createHash } from 'node:crypto';
import { constants, type BigIntStats } from 'node:fs';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { KpngError, type ErrorCode } from '../errors.ts';
import { formatBytes } from './bytes.ts';

/** The name of a file in messages, and its error codes. */
export interface FileKind {
  /** Such as `the state file`. */
  readonly name: string;
  readonly unreadable: ErrorCode;
  readonly tooLarge: ErrorCode;
}

/** The content of a file that others may write to. */
export interface FileContent {
  /** With a buffer of its own. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Equal for equal bytes. */
  readonly digest: string;
  readonly signature: string;
  /** Whether the file did not change while it was read. */
  readonly settled: boolean;
}

/** Amount read and hashed without yielding. Bytes. */
const PIECE = 1024 * 1024;

/** Reads a regular file of not more than `maxBytes`. Never rejects. */
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
    const before = await handle.stat({ bigint: true });
    if (before.isDirectory()) return fail(unreadable, 'it is a directory');
    if (!before.isFile()) return fail(unreadable, 'it is not a regular file');
    const limit = `it is larger than ${formatBytes(maxBytes)}`;
    if (before.size > BigInt(maxBytes)) return fail(tooLarge, limit);
    const hash = createHash('sha256');
    // One extra byte detects the end without another buffer.
    let bytes = new Uint8Array(Number(before.size) + 1);
    let length = 0;
    for (;;) {
      if (length === bytes.length) {
        const larger = new Uint8Array(bytes.length * 2);
        larger.set(bytes);
        bytes = larger;
      }
      const room = Math.min(PIECE, bytes.length - length);
      const { bytesRead } = await handle.read(bytes, length, room);
      if (bytesRead === 0) break;
      hash.update(bytes.subarray(length, length + bytesRead));
      length += bytesRead;
      if (length > maxBytes) return fail(tooLarge, limit);
    }
    const after = await handle.stat({ bigint: true });
    const signature = signatureOf(after);
    const settled = signature === signatureOf(before) && BigInt(length) === after.size;
    return { bytes: bytes.subarray(0, length), digest: hash.digest('hex'), signature, settled };
  } catch (error) {
    return fail(unreadable, fileCodeText(causeOf(error)), error);
  } finally {
    await handle?.close();
  }
}

/**
 * Changes whenever a file is written to, renamed over or swapped, except by a write of the same size within one tick
 * of the file system's clock.
 */
function signatureOf(stats: BigIntStats): string {
  const { dev, ino, size, mtimeNs, ctimeNs } = stats;
  return `${dev}:${ino}:${size}:${mtimeNs}:${ctimeNs}`;
}

/** The file's signature, or the error. */
export async function statusOf(path: string): Promise<string> {
  try {
    return signatureOf(await stat(path, { bigint: true }));
  } catch (error) {
    return causeOf(error);
  }
}

/** The system error code, such as `ENOENT`, or else the message. */
function causeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as NodeJS.ErrnoException;
  return code ?? error.message;
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

/** The same for a system error code; other texts are returned unchanged. */
function fileCodeText(code: string): string {
  return WORDS[code] ?? code;
}
