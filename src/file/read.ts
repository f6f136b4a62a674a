import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { constants, type BigIntStats } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { KpngError } from '../errors.ts';
import { formatBytes } from '../util/bytes.ts';
import { fileCodeText } from '../util/file-error.ts';
import { problemsIn, type Problems } from './problem.ts';

/** A file's content, as far as can be told of a file that others write to. */
export interface FileContent {
  /** With a buffer of its own. */
  readonly bytes: Uint8Array<ArrayBuffer>;
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
 * The error is KPNG_STATE_FILE_READ when that is not possible, and KPNG_STATE_FILE_LIMIT when the
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
    return readError(path, fileCodeText(causeOf(error)), error);
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
    const { bytes, digest } = await readAll(handle, Number(before.size), maxBytes);
    if (bytes.length > maxBytes) throw tooLarge(path, maxBytes);
    const after = await handle.stat({ bigint: true });
    const signature = signatureOf(after);
    return {
      bytes,
      digest,
      signature,
      settled: signature === signatureOf(before) && BigInt(bytes.length) === after.size,
    };
  } finally {
    await handle.close();
  }
}

/** As much is read and hashed without a pause. Bytes. */
const PIECE = 1024 * 1024;

/** Reads to the end, or until there is more than may be. */
async function readAll(
  handle: FileHandle,
  expected: number,
  maxBytes: number,
): Promise<{ bytes: Uint8Array<ArrayBuffer>; digest: string }> {
  const hash = createHash('sha256');
  // One byte more shows the end without another buffer.
  let bytes = new Uint8Array(expected + 1);
  let length = 0;
  for (;;) {
    if (length === bytes.length) bytes = enlarged(bytes);
    const room = Math.min(PIECE, bytes.length - length);
    const { bytesRead } = await handle.read(bytes, length, room);
    if (bytesRead === 0) break;
    hash.update(bytes.subarray(length, length + bytesRead));
    length += bytesRead;
    if (length > maxBytes) break;
  }
  return { bytes: bytes.subarray(0, length), digest: hash.digest('hex') };
}

function enlarged(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(bytes.length * 2);
  larger.set(bytes);
  return larger;
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
  return new KpngError('KPNG_STATE_FILE_LIMIT', `${path}: the file is larger than ${limit}`);
}

/** Decodes UTF-8, with or without a byte order mark. */
export function decodeText(
  bytes: Uint8Array,
): string | { readonly ok: false; readonly errors: Problems } {
  const text = new TextDecoder().decode(bytes);
  if (isUtf8(bytes)) return text;
  const problem = {
    offset: text.indexOf('\uFFFD'),
    path: '',
    message: 'the file is not UTF-8 text',
  };
  return { ok: false, errors: problemsIn(text, [problem], 1, 1) };
}
