import { lstatSync, mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { dirname } from 'node:path';
import { messageOf } from '../errors.ts';
import type { Heir } from '../proxysocket/engine.ts';
import type { FormerListener } from '../proxysocket/core/inherited.ts';
import type { FormerFlow } from '../proxysocket/udp/former-flows.ts';
import { EXCHANGE_LIMIT_MS, MAX_LINE_BYTES, networkNamespace, readTaken } from './protocol.ts';
import { giveInThread } from './thread.ts';

export interface HandoverServerOptions {
  /** Of the unix socket. Whatever socket is there is replaced. */
  readonly path: string;
  /** What this process listens on now. */
  readonly listeners: () => readonly FormerListener[];
  /** The UDP sessions that it has now. */
  readonly flows: () => Promise<readonly FormerFlow[]>;
  /** TCP ports of what else listens in this process and is to be handed over. */
  readonly ports: () => readonly number[];
  /** A successor has got the sockets, and puts its own state in place. */
  readonly onGiven: (pid: number, sockets: number) => void;
  /** Somebody called who got nothing, or a successor has gone before it served; this process goes on. */
  readonly onFailed: (reason: string) => void;
}

/** A successor that serves the clients. */
export interface Taken {
  readonly pid: number;
  /**
   * Which of the listening sockets it serves; undefined: it does not say. Sockets that were opened after it had
   * called are none of them: it never got them.
   */
  readonly heir: Heir | undefined;
}

type State =
  | { readonly kind: 'alone' }
  /** A successor has called; it may serve already, or be about to. */
  | { readonly kind: 'called'; readonly socket: Socket; readonly over: Promise<void> }
  | { readonly kind: 'taken' };

/** Waits for a successor and gives it the sockets of this process. */
export class HandoverServer {
  readonly #options: HandoverServerOptions;
  readonly #server: Server;
  readonly #taken = Promise.withResolvers<Taken>();
  readonly #successorGone = Promise.withResolvers<void>();
  #state: State = { kind: 'alone' };
  #inode: number | undefined;

  constructor(options: HandoverServerOptions) {
    this.#options = options;
    this.#server = createServer({ pauseOnConnect: true }, (socket) => this.#called(socket));
    this.#server.unref();
  }

  /** Resolves when a successor serves the clients; never, if none does. */
  get taken(): Promise<Taken> {
    return this.#taken.promise;
  }

  /** Resolves when the successor that has taken over has ended. */
  get successorGone(): Promise<void> {
    return this.#successorGone.promise;
  }

  /**
   * Listens, readable for nobody else; makes the folder, for its owner only, when it is missing. Rejects
   * with the system's error. The socket gets its name only when it
   * listens, so that it takes the place of the predecessor's in one step; and Node, which removes the file of
   * a socket when it closes, does not know that name.
   */
  async listen(): Promise<void> {
    const { path } = this.#options;
    makeFolder(dirname(path));
    const temporary = `${path}.${process.pid}`;
    rmSync(temporary, { force: true });
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once('error', reject);
    const mask = process.umask(0o177);
    try {
      // It is bound before this returns.
      this.#server.listen(temporary, resolve);
    } finally {
      process.umask(mask);
    }
    await promise;
    this.#server.off('error', reject);
    this.#server.on('error', () => undefined);
    if (lstatSync(path, { throwIfNoEntry: false })?.isSocket() === false) {
      this.#server.close();
      throw new Error(`${path} is there, and is no socket`);
    }
    this.#inode = statSync(temporary).ino;
    renameSync(temporary, path);
  }

  /** Waits while a successor is about to take over; then it is known whether it has. */
  async settled(): Promise<void> {
    if (this.#state.kind === 'called') await this.#state.over;
  }

  /** Gives nothing any more, and removes the socket unless it is somebody else's by now. Idempotent. */
  close(): void {
    this.#server.close();
    if (this.#state.kind === 'called') this.#state.socket.destroy();
    const { path } = this.#options;
    if (this.#inode === undefined) return;
    if (statSync(path, { throwIfNoEntry: false })?.ino === this.#inode) rmSync(path);
  }

  #called(socket: Socket): void {
    socket.unref();
    socket.on('error', () => undefined);
    // One at a time; whoever comes second starts as if it were alone, and is told what is taken.
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
      const given = await giveInThread({
        kind: 'give',
        // Only now: the number of one that was closed meanwhile may be that of something else.
        fd: descriptorOf(socket),
        listeners: listeners(),
        flows: sessions,
        ports: ports(),
        pid: process.pid,
        uid: process.geteuid?.() ?? -1,
        network: networkNamespace(),
        limitMs: EXCHANGE_LIMIT_MS,
      });
      if (!given.ok) throw new Error(`it got nothing: ${given.reason}`);
      onGiven(given.pid, given.inodes.length);
      const left = await untilTaken(socket);
      const heir = left && heirOf(given.inodes, new Set(left));
      this.#state = { kind: 'taken' };
      socket.once('close', () => this.#successorGone.resolve());
      this.#taken.resolve({ pid: given.pid, heir });
    } catch (error) {
      socket.destroy();
      this.#state = { kind: 'alone' };
      onFailed(messageOf(error));
    }
  }
}

function heirOf(given: readonly number[], left: ReadonlySet<number>): Heir {
  return { served: new Set(given.filter((inode) => !left.has(inode))) };
}

/** What a successor has left when it serves; undefined: it does not say. Rejects when it goes before. */
async function untilTaken(socket: Socket): Promise<readonly number[] | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<readonly number[] | undefined>();
  let text = '';
  socket.setEncoding('latin1').on('data', (part: string) => {
    text += part;
    try {
      if (text.length > MAX_LINE_BYTES) throw new Error('it sent a message that is too long');
      const taken = readTaken(text);
      if (taken !== undefined) resolve(taken.left);
    } catch (error) {
      reject(error);
    }
  });
  socket.once('close', () => reject(new Error('it has gone before it took over')));
  socket.resume();
  return promise;
}

/** Node has no other way to it. */
function descriptorOf(socket: Socket): number {
  const { _handle: handle } = socket as unknown as { readonly _handle?: { readonly fd?: number } };
  if (handle?.fd === undefined || handle.fd < 0) throw new Error('the connection is closed');
  return handle.fd;
}

/** Only the last part of it: that anything above is missing is more likely a mistake. */
function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}
