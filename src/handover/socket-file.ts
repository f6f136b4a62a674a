import { linkSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { connect, type Server } from 'node:net';
import { dirname } from 'node:path';

/** The file that a path named; undefined: none. Another file at the path has another identity while a process listens on this. */
export type FileId = number | undefined;

export function fileAt(path: string): FileId {
  return lstatSync(path, { throwIfNoEntry: false })?.ino;
}

/**
 * The file of a unix socket that one process after another listens on.
 *
 * A server is bound beside the path and then moved there in one step. Only the owner of the path does so: the process that
 * found no one listening, or that took over from the one that does. `expected` is the file that was there then.
 */
export class SocketFile {
  readonly #path: string;
  #own: FileId;

  constructor(path: string) {
    this.#path = path;
  }

  /** Whether the path names the server that was moved there. */
  get isOwn(): boolean {
    return this.#own !== undefined && fileAt(this.#path) === this.#own;
  }

  /**
   * Lets a server listen at the path, for its own user only; makes the folder when only that is missing. Rejects with
   * the system's error, and with an Error while another process listens there; then the server is closed.
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

  /** Removes the file, unless the path names that of another process by now. Idempotent. */
  remove(): void {
    if (this.isOwn) rmSync(this.#path);
    this.#own = undefined;
  }

  async #move(temporary: string, expected: FileId): Promise<void> {
    const path = this.#path;
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined) {
      // Unlike a rename this fails when another process is faster.
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
    // It is bound before this returns.
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
 * Whether another socket of this network namespace listens there. The kernel lists the name that a socket was bound to, which
 * is one beside the path; one of these is our own. Asks the kernel first, as a call would keep a new process waiting.
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

/** Creates only the last directory: a missing one above is more likely a mistake. */
function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}
