import { once } from 'node:events';
import { fstatSync, linkSync, lstatSync, mkdirSync, renameSync, rmSync, type Stats } from 'node:fs';
import { connect, type Server } from 'node:net';
import { dirname } from 'node:path';

/** Maximum length of a path in a socket address. A longer one would be truncated or refused. Bytes. */
export const MAX_SOCKET_PATH = 107;

/** Why a path cannot be that of a unix socket; undefined: it can. */
export function socketPathProblem(path: string): string | undefined {
  if (path === '' || path.endsWith('/')) return 'the path of the socket is missing';
  if (path.includes('\0')) return 'the path has a zero byte';
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH) return undefined;
  return `the path of a socket has at most ${MAX_SOCKET_PATH} bytes`;
}

/** The file at a path; undefined: none. Its identity is not reused while a process listens on it. */
export type FileId = number | undefined;

export function fileAt(path: string): FileId {
  return lstatSync(path, { throwIfNoEntry: false })?.ino;
}

/**
 * The file of a unix socket that one process after another listens on. A server is bound beside the path and then
 * moved there in one step, so clients always find a complete socket, of this process or of another one.
 */
export class SocketFile {
  readonly #path: string;
  #own: FileId;

  constructor(path: string) {
    this.#path = path;
  }

  get isOwn(): boolean {
    return this.#own !== undefined && fileAt(this.#path) === this.#own;
  }

  /**
   * Lets a server listen at the path, for its own user only. `check` gets the file that is there; it throws or rejects
   * if that must not be replaced. Rejects with the same error, or the system's; the server is closed then.
   */
  async take(server: Server, check: (found: Stats) => void | Promise<void>): Promise<void> {
    const draft = `${this.#path}~${process.pid}`;
    rmSync(draft, { force: true });
    await listenPrivately(server, draft);
    try {
      const own = fileAt(draft);
      const found = lstatSync(this.#path, { throwIfNoEntry: false });
      if (found !== undefined) await check(found);
      if (found !== undefined || !moveExclusively(draft, this.#path)) renameSync(draft, this.#path);
      this.#own = own;
    } catch (error) {
      // Node removes the draft.
      server.close();
      throw error;
    }
  }

  /** Removes the file, unless the path now belongs to another process. Idempotent. Never throws. */
  remove(): void {
    try {
      if (this.isOwn) rmSync(this.#path);
    } catch {
      // If the folder is no longer writable, the file stays. The next process finds that it is not served.
    }
    this.#own = undefined;
  }
}

/**
 * Unlike a rename, fails if another process is faster. Returns false if the file system has no hard links; the file is
 * where it was then.
 */
function moveExclusively(from: string, to: string): boolean {
  try {
    linkSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw error;
    return false;
  }
  rmSync(from);
  return true;
}

/** Lets a server listen at a path, for its own user only whatever the umask of the process. Rejects with the system's error. */
export async function listenPrivately(server: Server, path: string): Promise<void> {
  const mask = process.umask(0o177);
  try {
    // The socket is created within the call: no other user can open it in between.
    server.listen(path);
  } finally {
    process.umask(mask);
  }
  await once(server, 'listening');
}

/** Whether a process listens on a socket. */
export function isServed(path: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(path);
  socket.once('connect', () => resolve(true));
  // Any other error, such as a full queue, shows that there is a listener.
  socket.once('error', ({ code }: NodeJS.ErrnoException) =>
    resolve(code !== 'ECONNREFUSED' && code !== 'ENOENT'),
  );
  return promise.finally(() => socket.destroy());
}

/** Creates the directory of a path, for this user only. A missing parent is more likely a mistake. */
export function makeDirectoryOf(path: string): void {
  try {
    mkdirSync(dirname(path), { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/** The inode number of a descriptor of this process; undefined if another thread has closed it. */
export function inodeOf(fd: number): number | undefined {
  try {
    return fstatSync(fd).ino;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EBADF') return undefined;
    throw error;
  }
}
