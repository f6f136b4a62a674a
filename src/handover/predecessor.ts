import { readFileSync, type Stats } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { messageOf } from '../errors.ts';
import type { NewProcess } from '../proxysocket/engine.ts';
import type { PreviousFlow } from '../proxysocket/udp/known-clients.ts';
import type { Log } from '../observe/log.ts';
import { openSys } from '../proxysocket/linux/sys/sys.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import {
  inodeOf,
  makeDirectoryOf,
  SocketFile,
  type FileId,
  isServed,
} from '../util/socket-file.ts';
import {
  GREETING,
  type HELLO,
  isAllowedUser,
  type OFFER,
  parseMessage,
  type PreviousListener,
  refusal,
  type REFUSAL,
  TAKEN,
} from './protocol.ts';
import { Wire } from './wire.ts';

/** Interval of the checks that the socket file is still ours. Milliseconds. */
export const KEEP_MS = 10_000;

/**
 * Pause before that check after a new process has failed: the kernel closes its sockets one after another. Milliseconds.
 */
export const RETAKE_MS = 100;

/** How long a new process may wait for its state when another one calls: then that gets the sockets. Milliseconds. */
export const SILENT_MS = 600_000;

/** What a new process gets. */
export interface Offered {
  readonly listeners: readonly PreviousListener[];
  /** UDP sessions, whose clients the new process sends to the same endpoints. */
  readonly flows: readonly PreviousFlow[];
  /** TCP ports of other listeners of this process. */
  readonly ports: readonly number[];
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
  readonly #path: string;
  readonly #offer: () => Promise<Offered>;
  readonly #log: Pick<Log, 'info' | 'warn'>;
  readonly #clock: Clock;
  readonly #file: SocketFile;
  readonly #handedOver = Promise.withResolvers<number>();
  /** Resolves with the process id of a new process when it serves the clients. */
  readonly handedOver = this.#handedOver.promise;
  /** That process. `served` lacks sockets opened after its call: it never received them. `gone`: when it has ended. */
  newProcess: (NewProcess & { readonly gone: Promise<void> }) | undefined;
  #call: Call | undefined;
  #server: Server | undefined;
  #timer: Timer | undefined;
  #unreachable: string | undefined;
  isClosed = false;

  /** `offer`: what a new process gets. */
  constructor(
    path: string,
    offer: () => Promise<Offered>,
    log: Pick<Log, 'info' | 'warn'>,
    clock = systemClock,
  ) {
    this.#path = path;
    this.#offer = offer;
    this.#log = log;
    this.#clock = clock;
    this.#file = new SocketFile(path);
  }

  /**
   * Listens until `close`. Resolves after the first attempt; failures are logged. Binds the path again when the file is
   * gone, and when another process that held it has ended. `expected`: the file that this process found when it started,
   * see `checkUnserved`.
   */
  async listen(expected?: FileId): Promise<void> {
    let reason: string | undefined;
    try {
      await this.#takePath(expected);
    } catch (error) {
      reason = messageOf(error);
    }
    if (this.isClosed) return this.close();
    const path = this.#path;
    if (reason !== undefined && reason !== this.#unreachable) {
      const message = 'Handover socket unavailable; a new process cannot take over; retrying';
      this.#log.warn(message, { path, reason });
    } else if (reason === undefined && this.#unreachable !== undefined) {
      this.#log.info('Handover socket ready; a new process can take over', { path });
    }
    this.#unreachable = reason;
    this.#schedule(KEEP_MS);
  }

  /** Waits up to `withinMs` for a new process that is about to take over. */
  async settled(withinMs: number): Promise<void> {
    if (this.#call === undefined) return;
    const late = Promise.withResolvers<void>();
    const timer = this.#clock.setTimer(withinMs, () => {
      this.#log.warn('New process did not take over in time; stopping without it', { withinMs });
      late.resolve();
    });
    await Promise.race([this.#call.over, late.promise]).finally(() => timer.cancel());
  }

  /**
   * With a new process, waits for a signal, which resolves `asked`, or for that process to end. Returns the exit code: not
   * 0 in the second case, so that the service manager restarts this process.
   */
  async wait(asked: Promise<unknown>): Promise<number> {
    if (this.newProcess === undefined) return 0;
    this.#log.info('Waiting for a signal, or for the new process to end');
    const code = await Promise.race([asked.then(() => 0), this.newProcess.gone.then(() => 1)]);
    if (code !== 0) this.#log.warn('New process has ended; exiting, to be restarted');
    return code;
  }

  /**
   * Stops handing over, and removes the socket unless another process owns it. The connection to a new process stays
   * open. Idempotent.
   */
  close(): void {
    this.isClosed = true;
    this.#timer?.cancel();
    this.#file.remove();
    this.#server?.close();
    if (this.newProcess === undefined) this.#call?.socket.destroy();
  }

  #schedule(ms: number): void {
    this.#timer?.cancel();
    this.#timer = this.#clock.setTimer(ms, () => void this.listen());
  }

  async #takePath(expected: FileId): Promise<void> {
    // A new process that has called may have moved its own socket there.
    if (this.#file.isOwn || this.#call !== undefined) return;
    this.#server?.close();
    const server = createServer({ pauseOnConnect: true }, (socket) => this.#called(socket));
    server.unref();
    this.#server = server;
    makeDirectoryOf(this.#path);
    await this.#file.take(server, (found) => checkUnserved(this.#path, found, expected));
    server.on('error', () => undefined);
  }

  #called(socket: Socket): void {
    socket.unref();
    socket.on('error', () => undefined);
    const before = this.#call;
    const now = this.#clock.now();
    if (before === undefined) {
      this.#call = { socket, since: now, over: this.#give(socket) };
    } else if (this.newProcess === undefined && now - before.since >= SILENT_MS) {
      before.socket.destroy();
      void before.over.then(() => this.#called(socket));
    } else {
      // One at a time; a second caller finds the ports in use, and starts as if it were alone.
      socket.destroy();
    }
  }

  async #give(socket: Socket): Promise<void> {
    try {
      const wire = new Wire(await openSys(), socket);
      const { pid, inodes } = await sendSockets(wire, await this.#offer());
      this.#log.info('Handing the listeners to a new process', { pid, sockets: inodes.length });
      wire.waitLonger();
      const line = await wire.readLine('no sockets');
      const left = new Set(parseMessage('list of sockets', line, TAKEN).left);
      const served = new Set(inodes.filter((inode) => !left.has(inode)));
      socket.resume();
      const gone = Promise.withResolvers<void>();
      socket.once('close', () => gone.resolve());
      this.newProcess = { served, gone: gone.promise };
      this.close();
      this.#log.info('New process has taken over', { pid });
      this.#handedOver.resolve(pid);
    } catch (error) {
      socket.destroy();
      this.#call = undefined;
      // It may have moved its own socket to the path. Until that is replaced, another new process would start alone.
      if (!this.isClosed) this.#schedule(RETAKE_MS);
      const reason = messageOf(error);
      this.#log.warn('New process did not take over; still serving', { reason });
    }
  }
}

/**
 * Answers a new process with the listening sockets. One that may not have them, or cannot use them, gets the reason, which
 * is thrown here.
 */
export async function sendSockets(wire: Wire, { listeners, flows, ports }: Offered) {
  const refuse = async (reason: string): Promise<never> => {
    await wire.say({ ok: false, reason } satisfies typeof REFUSAL);
    throw new Error(`call refused: ${reason}`);
  };
  if (!isAllowedUser(wire.peerUser())) return refuse('it belongs to another user');
  const line = await wire.readLine('no sockets');
  const hello = parseMessage('greeting', line, GREETING) as typeof HELLO;
  const problem = refusal(hello);
  if (problem !== undefined) return refuse(problem);
  const found = await listeningSockets(wire, [
    ...listeners,
    ...ports.map((port) => ({ protocol: 'TCP' as const, port })),
  ]);
  const { pid } = process;
  const lists = { former: [...listeners], flows: [...flows] };
  await wire.say({ ok: true, pid, sockets: found.size, ...lists } satisfies typeof OFFER);
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
  // The fourth column has the flag __SO_ACCEPTCON.
  const listening = /^(?:\S+ ){3}00010000 .*? (\/.*)$/gm;
  const names = [...readFileSync('/proc/net/unix', 'utf8').matchAll(listening)].filter(
    ([, name = '']) => name === path || name.startsWith(`${path}~`),
  );
  return names.length > 1;
}
