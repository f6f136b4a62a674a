import { linkSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { connect, type Server } from 'node:net';
import { dirname } from 'node:path';

/** The file at a path; undefined: none. Its identity is not reused while a process listens on it. */
export type FileId = number | undefined;

export function fileAt(path: string): FileId {
  return lstatSync(path, { throwIfNoEntry: false })?.ino;
}

/**
 * The file of a unix socket that one process after another listens on.
 *
 * A server is bound beside the path and then moved there in one step. Only the owner of the path does so: the process
 * that found no listener, or took over from it. `expected` is the file that was there then.
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
   * Lets a server listen at the path, for its own user only; makes the folder when only that is missing. Rejects with
   * the system's error, or with an Error if another process listens there; the server is closed then.
   */
  async take(server: Server, expected: FileId): Promise<void> {
    const temporary = `${this.#path}.${process.pid}`;
    makeFolder(dirname(this.#path));
    rmSync(temporary, { force: true });
    await listen(server, temporary);
    try {
      const own = fileAt(temporary);
      await this.#move(temporary, expected);
      this.#own = own;
    } catch (error) {
      server.close();
      throw error;
    }
  }

  /** Removes the file, unless the path now belongs to another process. Idempotent. */
  remove(): void {
    if (this.isOwn) rmSync(this.#path);
    this.#own = undefined;
  }

  async #move(temporary: string, expected: FileId): Promise<void> {
    const path = this.#path;
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined) {
      // Unlike a rename, this fails if another process is faster.
      linkSync(temporary, path);
      rmSync(temporary);
      return;
    }
    if (!found.isSocket()) throw new Error(`${path} exists and is not a socket`);
    if (found.ino !== expected && (isListed(path) || (await answers(path)))) {
      throw new Error(`another process listens on ${path}`);
    }
    renameSync(temporary, path);
  }
}

function listen(server: Server, path: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  const mask = process.umask(0o177);
  try {
    // Bound by the time this returns.
    server.listen(path, () => {
      server.off('error', reject);
      server.on('error', () => undefined);
      resolve();
    });
  } finally {
    process.umask(mask);
  }
  return promise;
}

/**
 * Whether another socket of this network namespace listens there. The kernel lists the name that a socket was bound
 * to, which is next to the path; one of these is our own. Checked before calling, since a call would delay a new
 * process.
 */
function isListed(path: string): boolean {
  const names = readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    .filter((line) => line.split(/\s+/)[3] === LISTENING)
    .map((line) => line.slice(line.indexOf('/')));
  return names.filter((name) => name === path || name.startsWith(`${path}.`)).length > 1;
}

/** The flag `__SO_ACCEPTCON`, as `/proc/net/unix` has it. */
const LISTENING = '00010000';

/** Whether a process of another network namespace listens there. */
function answers(path: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(path);
  socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
  return promise.finally(() => socket.destroy());
}

/** Creates only the last directory: a missing parent is more likely a mistake. */
function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}
