/**
 * Bytes that look random and can be made again: AES in counter mode over zeros. Both ends of a
 * transfer know the digest without keeping the bytes.
 */
import { createCipheriv, createHash } from 'node:crypto';
import { Readable } from 'node:stream';

const CHUNK = 256 * 1024;

/** `length` bytes, the same ones for the same seed, in chunks of up to 256 KiB. */
function* chunks(seed: string, length: number): Generator<Buffer> {
  const key = createHash('sha256').update(seed).digest().subarray(0, 16);
  const cipher = createCipheriv('aes-128-ctr', key, Buffer.alloc(16));
  const zeros = Buffer.alloc(CHUNK);
  for (let left = length; left > 0; left -= CHUNK) {
    yield cipher.update(left < CHUNK ? zeros.subarray(0, left) : zeros);
  }
}

/** The bytes as a stream. */
export function streamOf(seed: string, length: number): Readable {
  return Readable.from(chunks(seed, length), { objectMode: false });
}

/** SHA-256 of the bytes, in hex. */
export function digestOf(seed: string, length: number): string {
  const hash = createHash('sha256');
  for (const chunk of chunks(seed, length)) hash.update(chunk);
  return hash.digest('hex');
}

/** SHA-256 and length of everything that a stream brings. */
export async function digestOfStream(
  stream: AsyncIterable<Buffer>,
): Promise<{ digest: string; length: number }> {
  const hash = createHash('sha256');
  let length = 0;
  for await (const chunk of stream) {
    hash.update(chunk);
    length += chunk.length;
  }
  return { digest: hash.digest('hex'), length };
}
