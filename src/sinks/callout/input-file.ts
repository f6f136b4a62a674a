import { mkdtemp, open, rm, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Writes text to an unlinked file, for a program to read as its standard input. It is freed when the handle is
 * closed.
 *
 * Node's own pipes are sockets, and a program cannot open `/dev/stdin` when that is a socket: scripts that do so work
 * with this. A program that does not read cannot block this process either.
 */
export async function inputFile(pieces: Iterable<string>): Promise<FileHandle> {
  const handle = await unnamedFile();
  try {
    let position = 0;
    for (const piece of pieces) {
      // Writing at a position keeps the program's read offset at the start.
      const bytes = Buffer.from(piece);
      for (let start = 0; start < bytes.length;) {
        const { bytesWritten } = await handle.write(bytes, start, bytes.length - start, position);
        start += bytesWritten;
        position += bytesWritten;
      }
    }
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** In memory if the temporary folder is not writable, as in a read-only container. */
async function unnamedFile(): Promise<FileHandle> {
  try {
    return await unnamedFileIn(tmpdir());
  } catch (error) {
    if (process.platform !== 'linux') throw error;
    return unnamedFileIn('/dev/shm').catch(() => {
      throw error;
    });
  }
}

async function unnamedFileIn(parent: string): Promise<FileHandle> {
  const folder = await mkdtemp(join(parent, 'kpng-userspace-'));
  const opened = open(join(folder, 'state'), 'wx+', 0o600);
  // Remove the folder even if opening fails.
  await Promise.allSettled([opened]);
  try {
    await rm(folder, { recursive: true });
  } catch (error) {
    await opened.then((handle) => handle.close());
    throw error;
  }
  return opened;
}
