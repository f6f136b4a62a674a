import { readFileSync, type Stats } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { messageOf } from '../errors.ts';
import type { PreviousListener } from '../proxysocket/core/inherited.ts';
import type { NewProcess } from '../proxysocket/engine.ts';
import type { PreviousFlow } from '../proxysocket/udp/known-clients.ts';
import { isAllowedUser, type Offer, readHello, readTaken, refusal } from './protocol.ts';
import { openSys } from '../proxysocket/linux/sys/sys.ts';
import { Wire } from './wire.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import {
  inodeOf,
  makeDirectoryOf,
  SocketFile,
  type FileId,
  isServed,
} from '../util/socket-file.ts';

/** Interval of the checks that the socket file is still ours. Milliseconds. */
export const KEEP_MS = 10_000;

/**
 * Pause before that check after a new process has failed: the kernel closes its sockets one after another. Milliseconds.
 */
export const RETAKE_MS = 100;

/** How long a new process may wait for its state when another one calls: then that gets the sockets. Milliseconds. */
export const SILENT_MS = 600_000;

export interface SendOptions {
  readonly listeners: readonly PreviousListener[];
  /** UDP sessions, whose clients the new process sends to the same endpoints. */
  readonly flows: readonly PreviousFlow[];
  /** TCP ports of other listeners of this process. */
  readonly ports: readonly number[];
}

export interface HandoverServerOptions {
  readonly path: string;
  /** The socket file that this process found when it started: see `checkUnserved`. */
  readonly expected: FileId;
  readonly clock?: Clock;
  /** What a new process gets. */
  readonly offer: () => Promise<SendOptions>;
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

/** A new process has called; it may be serving already, or about to. */
interface Call {
  readonly socket: Socket;
  readonly since: number;
  /** It serves, or has failed. */
  readonly over: Promise<void>;
}

/** Waits for a new process and hands it the sockets of this process. */
export class HandoverServer {
  readonly #options: HandoverServerOptions;
  readonly #file: SocketFile;
  readonly #taken = Promise.withResolvers<Taken>();
  /** Resolves when a new process serves the clients, if one ever does. */
  readonly taken = this.#taken.promise;
  #call: Call | undefined;
  #isTaken = false;
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
    if (this.#call === undefined) return true;
    const late = Promise.withResolvers<boolean>();
    const timer = this.#clock.setTimer(withinMs, () => late.resolve(false));
    const over = this.#call.over.then(() => true);
    return Promise.race([over, late.promise]).finally(() => timer.cancel());
  }

  /** Stops handing over, and removes the socket unless another process owns it. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#file.remove();
    this.#server?.close();
    if (!this.#isTaken) this.#call?.socket.destroy();
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
    this.#schedule(KEEP_MS);
  }

  #schedule(ms: number): void {
    this.#timer?.cancel();
    this.#timer = this.#clock.setTimer(ms, () => void this.#listen(undefined));
  }

  async #takePath(expected: FileId): Promise<void> {
    // A new process that has called may have moved its own socket there.
    if (this.#file.isOwn || this.#call !== undefined) return;
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
    const before = this.#call;
    const now = this.#clock.now();
    if (before === undefined) {
      this.#call = { socket, since: now, over: this.#give(socket) };
    } else if (!this.#isTaken && now - before.since >= SILENT_MS) {
      before.socket.destroy();
      void before.over.then(() => this.#called(socket));
    } else {
      // One at a time; a second caller finds the ports in use, and starts as if it were alone.
      socket.destroy();
    }
  }

  async #give(socket: Socket): Promise<void> {
    const { offer, onGiven, onFailed } = this.#options;
    try {
      const wire = new Wire(await openSys(), socket);
      const given = await sendSockets(wire, await offer());
      onGiven(given.pid, given.inodes.length);
      wire.waitLonger();
      const left = new Set(readTaken(await wire.readLine('no sockets')));
      const served = new Set(given.inodes.filter((inode) => !left.has(inode)));
      this.#isTaken = true;
      socket.resume();
      const gone = Promise.withResolvers<void>();
      socket.once('close', () => gone.resolve());
      this.#taken.resolve({ pid: given.pid, newProcess: { served }, gone: gone.promise });
    } catch (error) {
      socket.destroy();
      this.#call = undefined;
      // It may have moved its own socket to the path. Until that is replaced, another new process would start alone.
      if (!this.#closed) this.#schedule(RETAKE_MS);
      onFailed(messageOf(error));
    }
  }
}

/**
 * Answers a new process with the listening sockets. One that may not have them, or cannot use them, gets the reason, which
 * is thrown here.
 */
export async function sendSockets(wire: Wire, { listeners, flows, ports }: SendOptions) {
  const refuse = async (reason: string): Promise<never> => {
    await wire.say({ ok: false, reason } satisfies Offer);
    throw new Error(`call refused: ${reason}`);
  };
  if (!isAllowedUser(wire.peerUser())) return refuse('it belongs to another user');
  const hello = readHello(await wire.readLine('no sockets'));
  const problem = refusal(hello);
  if (problem !== undefined) return refuse(problem);
  const found = await listeningSockets(wire, [
    ...listeners,
    ...ports.map((port) => ({ protocol: 'TCP' as const, port })),
  ]);
  const { pid } = process;
  await wire.say({ ok: true, pid, sockets: found.size, former: listeners, flows } satisfies Offer);
  await wire.sendDescriptors([...found.values()]);
  return { pid: hello.pid, inodes: [...found.keys()] };
}

/** Descriptors that are looked at in one turn of the event loop: about a millisecond of work. */
const AT_ONCE = 128;

/**
 * The sockets of this process that listen on the given ports, from any thread: one descriptor of each, by inode
 * number. One that is closed and reused before it is sent does no harm: the new process checks what it receives.
 */
async function listeningSockets(
  wire: Wire,
  listeners: readonly Pick<PreviousListener, 'protocol' | 'port'>[],
): Promise<Map<number, number>> {
  const ports = new Set(listeners.map(({ protocol, port }) => `${protocol} ${port}`));
  const found = new Map<number, number>();
  for (const [index, name] of (await readdir('/proc/self/fd')).entries()) {
    if (index % AT_ONCE === AT_ONCE - 1) await setImmediate();
    const fd = Number(name);
    const socket = wire.listeningSocket(fd);
    if (socket === undefined || !ports.has(`${socket.protocol} ${socket.port}`)) continue;
    // Workers of the `node` engine have two of each socket, which the new process would mistake for two listeners.
    const inode = inodeOf(fd);
    if (inode !== undefined && !found.has(inode)) found.set(inode, fd);
  }
  return found;
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
