import { createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '../errors.ts';
import type { NewProcess } from '../proxysocket/engine.ts';
import type { PreviousListener } from '../proxysocket/core/inherited.ts';
import type { PreviousFlow } from '../proxysocket/udp/known-clients.ts';
import { MAX_TAKEN_BYTES, readTaken } from './protocol.ts';
import { runInThread } from './thread.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import { makeDirectoryOf, SocketFile, type FileId, isServed } from '../util/socket-file.ts';
import { readFileSync, type Stats } from 'node:fs';

/** Interval of the checks that the socket file is still ours. Milliseconds. */
export const KEEP_MS = 10_000;

export interface HandoverServerOptions {
  readonly path: string;
  /** The socket file that this process found when it started: see `checkUnserved`. */
  readonly expected: FileId;
  readonly clock?: Clock;
  readonly listeners: () => readonly PreviousListener[];
  readonly flows: () => Promise<readonly PreviousFlow[]>;
  readonly ports: () => readonly number[];
  /** A new process has received the sockets, and is applying its own state. */
  readonly onGiven: (pid: number, sockets: number) => void;
  /** A call was refused, or a new process ended before it served; this process still serves. */
  readonly onFailed: (reason: string) => void;
  /** No new process can connect, for this reason; undefined: it can again. Retried every `KEEP_MS`. */
  readonly onUnreachable: (reason: string | undefined) => void;
}

export interface Taken {
  readonly pid: number;
  /** The listening sockets that it serves. Those opened after its call are not among them: it never received them. */
  readonly newProcess: NewProcess;
  readonly gone: Promise<void>;
}

type State =
  | { readonly kind: 'alone' }
  /** A new process has called; it may be serving already, or about to. */
  | { readonly kind: 'called'; readonly socket: Socket; readonly over: Promise<void> }
  | { readonly kind: 'taken' };

/** Waits for a new process and hands it the sockets of this process. */
export class HandoverServer {
  readonly #options: HandoverServerOptions;
  readonly #file: SocketFile;
  readonly #taken = Promise.withResolvers<Taken>();
  /** Resolves when a new process serves the clients, if one ever does. */
  readonly taken = this.#taken.promise;
  #state: State = { kind: 'alone' };
  #server: Server | undefined;
  #timer: Timer | undefined;
  #unreachable: string | undefined;
  #closed = false;

  constructor(options: HandoverServerOptions) {
    this.#options = options;
    this.#file = new SocketFile(options.path);
  }

  /**
   * Listens until `close`. Resolves after the first attempt; a failure is reported by `onUnreachable`. Binds the path
   * again when the file is gone, and when another process that held it has ended.
   */
  async listen(): Promise<void> {
    await this.#listen(this.#options.expected);
  }

  /** Waits up to `withinMs` for a new process that is about to take over; resolves with whether it has. */
  async settled(withinMs: number): Promise<boolean> {
    if (this.#state.kind !== 'called') return true;
    const late = Promise.withResolvers<boolean>();
    const timer = this.#clock.setTimer(withinMs, () => late.resolve(false));
    const over = this.#state.over.then(() => true);
    return Promise.race([over, late.promise]).finally(() => timer.cancel());
  }

  /** Stops handing over, and removes the socket unless another process owns it. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#file.remove();
    this.#server?.close();
    if (this.#state.kind === 'called') this.#state.socket.destroy();
  }

  get #clock(): Clock {
    return this.#options.clock ?? systemClock;
  }

  async #listen(expected: FileId): Promise<void> {
    let unreachable: string | undefined;
    try {
      await this.#takePath(expected);
    } catch (error) {
      unreachable = messageOf(error);
    }
    if (this.#closed) return this.close();
    if (unreachable !== this.#unreachable) this.#options.onUnreachable(unreachable);
    this.#unreachable = unreachable;
    this.#timer = this.#clock.setTimer(KEEP_MS, () => void this.#listen(undefined));
  }

  async #takePath(expected: FileId): Promise<void> {
    // A new process that has called may have moved its own socket there.
    if (this.#file.isOwn || this.#state.kind === 'called') return;
    this.#server?.close();
    const server = createServer({ pauseOnConnect: true }, (socket) => this.#called(socket));
    server.unref();
    this.#server = server;
    const { path } = this.#options;
    makeDirectoryOf(path);
    await this.#file.take(server, (found) => checkUnserved(path, found, expected));
    server.on('error', () => undefined);
  }

  #called(socket: Socket): void {
    socket.unref();
    socket.on('error', () => undefined);
    // One at a time; a second caller finds the ports in use, and starts as if it were alone.
    if (this.#state.kind !== 'alone') {
      socket.destroy();
      return;
    }
    const over = Promise.withResolvers<void>();
    this.#state = { kind: 'called', socket, over: over.promise };
    void this.#give(socket).finally(over.resolve);
  }

  async #give(socket: Socket): Promise<void> {
    const { listeners, flows, ports, onGiven, onFailed } = this.#options;
    try {
      const sessions = await flows();
      // Not earlier: the descriptor of a closed socket may already have been reused.
      const fd = descriptorOf(socket);
      const options = { listeners: listeners(), flows: sessions, ports: ports() };
      const given = await runInThread({ fd, ...options });
      if (!given.ok) throw new Error(`call refused: ${given.reason}`);
      onGiven(given.pid, given.inodes.length);
      const left = new Set(await untilTaken(socket));
      const served = new Set(given.inodes.filter((inode) => !left.has(inode)));
      this.#state = { kind: 'taken' };
      const gone = Promise.withResolvers<void>();
      socket.once('close', () => gone.resolve());
      this.#taken.resolve({ pid: given.pid, newProcess: { served }, gone: gone.promise });
    } catch (error) {
      socket.destroy();
      this.#state = { kind: 'alone' };
      onFailed(messageOf(error));
    }
  }
}

/** The sockets that a new process does not serve, once it serves the others. Rejects if it ends before. */
async function untilTaken(socket: Socket): Promise<readonly number[]> {
  const { promise, resolve, reject } = Promise.withResolvers<readonly number[]>();
  let text = '';
  socket.setEncoding('latin1').on('data', (part: string) => {
    text += part;
    try {
      if (text.length > MAX_TAKEN_BYTES) throw new Error('it sent a message that is too long');
      const left = readTaken(text);
      if (left !== undefined) resolve(left);
    } catch (error) {
      reject(error);
    }
  });
  socket.once('close', () => reject(new Error('it ended before it took over')));
  socket.resume();
  return promise;
}

/** Node offers no other way to get it. */
function descriptorOf(socket: Socket): number {
  const { _handle: handle } = socket as unknown as { readonly _handle?: { readonly fd?: number } };
  if (handle?.fd === undefined || handle.fd < 0) throw new Error('the connection is closed');
  return handle.fd;
}

/**
 * Throws if a file at the path must not be replaced. Only the owner of the path may replace it: the process that found
 * no listener, or took over from it. `expected` is the file that was there then.
 */
async function checkUnserved(path: string, found: Stats, expected: FileId): Promise<void> {
  if (!found.isSocket()) throw new Error(`${path} exists and is not a socket`);
  if (found.ino !== expected && (isListed(path) || (await isServed(path)))) {
    throw new Error(`another process listens on ${path}`);
  }
}

/**
 * Whether another socket of this network namespace listens there, from the kernel's list of the names that sockets were
 * bound to; one is our own. A call instead would delay a new process.
 */
function isListed(path: string): boolean {
  const names = readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    .filter((line) => line.split(/\s+/)[3] === LISTENING)
    .map((line) => line.slice(line.indexOf('/')));
  return names.filter((name) => name === path || name.startsWith(`${path}~`)).length > 1;
}

/** The flag `__SO_ACCEPTCON`, as `/proc/net/unix` has it. */
const LISTENING = '00010000';
