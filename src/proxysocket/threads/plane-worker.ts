import { closeSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import {
  MessageChannel,
  receiveMessageOnPort,
  Worker,
  type MessagePort,
} from 'node:worker_threads';
import { KpngError, messageOf } from '../../errors.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import type { Heir } from '../engine.ts';
import type { InspectQuery, Inspection } from '../inspect.ts';
import type { EngineLimits, LimitChange } from '../limits.ts';
import type { EngineChange } from '../spec.ts';
import { ADDRESS_POLL_MS } from '../udp/bounds.ts';
import { compileInPlace } from './compile-in-place.ts';
import { DescriptorLedger } from '../core/descriptor-ledger.ts';
import { decodeError } from './event-codec.ts';
import {
  CONTROL,
  CONTROL_BYTES,
  type Command,
  type Notice,
  type Report,
  type WorkerStart,
} from './protocol.ts';

/** What wakes a thread that waits for its eventfd. */
const WAKE_UP = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);

export interface PlaneWorkerOptions {
  readonly limits: EngineLimits;
  /** The largest number of descriptors that the process may have. */
  readonly descriptorLimit: number;
  /** How many of these the worker may count with. */
  readonly descriptorShare: number;
  /** The module that the thread runs. */
  readonly module: URL;
  /** Whether it makes so many system calls that V8 optimises them: see `compileInPlace`. */
  readonly compilesInPlace: boolean;
  readonly formerPorts?: ReadonlyMap<string, number>;
  readonly formerPlaces?: ReadonlySet<string>;
  /** A worker that has died, whose descriptors this one is to close. */
  readonly former?: PlaneWorker | undefined;
  /** Told to the thread, which cannot ask, again and again. Default: it looks by itself. */
  readonly hostAddresses?: (() => readonly HostAddress[]) | undefined;
  /** Told of everything that the worker reports but the outcome of commands. */
  readonly onReport: (report: Report) => void;
}

/** Why a worker cannot work here: the start-up probe that failed. */
export class UnfitError extends Error {
  override readonly name = 'UnfitError';
  readonly probe: string;

  constructor(probe: string, reason: string) {
    super(`${probe}: ${reason}`);
    this.probe = probe;
  }
}

interface Waiting {
  readonly resolve: (found?: Inspection) => void;
  readonly reject: (error: Error) => void;
}

/**
 * One worker thread, as the main thread sees it.
 *
 * A thread that blocks in the kernel has an eventfd, through which it is woken for every command, and when
 * the process ends, since Node waits for its threads. One that turns Node's own event loop has none: a
 * message wakes it.
 */
export class PlaneWorker {
  /** Resolves when the worker has passed its probes; rejects with an UnfitError, or with what killed it. */
  readonly ready: Promise<void>;
  /** Resolves when the thread is over: with the error that killed it, or undefined. */
  readonly over: Promise<Error | undefined>;
  readonly #worker: Worker;
  readonly #port: MessagePort;
  readonly #control = new Int32Array(new SharedArrayBuffer(CONTROL_BYTES));
  readonly #ledger: DescriptorLedger;
  readonly #onReport: (report: Report) => void;
  readonly #waiting = new Map<number, Waiting>();
  readonly #start = Promise.withResolvers<void>();
  #state: 'starting' | 'running' | 'over' = 'starting';
  #steers = false;
  #commands = 0;
  readonly #hostAddresses: (() => readonly HostAddress[]) | undefined;
  #hostTold = '';
  #error: Error | undefined;

  constructor(options: PlaneWorkerOptions) {
    this.#onReport = options.onReport;
    this.#hostAddresses = options.hostAddresses;
    this.#ledger = DescriptorLedger.create(options.descriptorLimit);
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const start: WorkerStart = {
      port: port2,
      control: this.#control.buffer,
      ledger: this.#ledger.memory,
      limits: options.limits,
      descriptorLimit: options.descriptorShare,
      formerPorts: options.formerPorts ?? new Map(),
      formerPlaces: options.formerPlaces ?? new Set(),
      orphans: options.former?.ledger,
    };
    const create = (): Worker =>
      new Worker(options.module, {
        name: 'kpng-userspace data plane',
        workerData: start,
        transferList: [port2],
        // That `node:ffi` is experimental is known, and what the probes are for.
        execArgv: ['--disable-warning=ExperimentalWarning'],
      });
    this.#worker = options.compilesInPlace ? compileInPlace(create) : create();
    this.ready = this.#start.promise;
    this.over = this.#ends();
    port1.on('message', (report: Report) => this.#take(report));
    // The thread itself keeps the process alive.
    port1.unref();
  }

  /** Whether sockets that share a place get all clients of one address. Known once it is ready. */
  get steers(): boolean {
    return this.#steers;
  }

  /** The memory that tells which descriptors it has open. */
  get ledger(): SharedArrayBuffer {
    return this.#ledger.memory;
  }

  /** Which channels have a subscriber: a bit for each. */
  set subscriptions(bits: number) {
    if (Atomics.exchange(this.#control, CONTROL.subscriptions, bits) !== bits) this.#wake();
  }

  /** Resolves when the changes have been carried out. Rejects with WorkerLost when the worker dies. */
  async apply(changes: readonly EngineChange[]): Promise<void> {
    this.#tellHost();
    await this.#send((id) => ({ kind: 'apply', id, changes }));
  }

  /** Rejects as `apply`. */
  async setLimits(limits: LimitChange): Promise<void> {
    await this.#send((id) => ({ kind: 'limits', id, limits }));
  }

  /** Undefined when there is nothing to look at. Rejects as `apply`. */
  inspect(query: InspectQuery): Promise<Inspection | undefined> {
    return this.#send((id) => ({ kind: 'inspect', id, query }));
  }

  /** Resolves when the last relay has ended; then the thread ends. */
  async close(heir?: Heir): Promise<void> {
    await this.#send((id) => ({ kind: 'close', id, heir }));
  }

  async destroy(): Promise<void> {
    await this.#send((id) => ({ kind: 'destroy', id }));
  }

  /** Ends the thread without asking it. Its descriptors stay open: see `closeOrphans`. */
  async terminate(): Promise<void> {
    Atomics.store(this.#control, CONTROL.stop, 1);
    this.#wake();
    await this.#worker.terminate();
  }

  /**
   * Blocks until the worker has done and told everything that came before, or for a second. Returns
   * whether it has.
   */
  sync(): boolean {
    if (this.#state !== 'running') return false;
    const asked = Atomics.add(this.#control, CONTROL.syncAsked, 1) + 1;
    this.#wake();
    const deadline = performance.now() + 1000;
    for (;;) {
      const done = Atomics.load(this.#control, CONTROL.syncDone);
      if (done >= asked || performance.now() > deadline) break;
      Atomics.wait(this.#control, CONTROL.syncDone, done, 100);
    }
    this.#drain();
    return Atomics.load(this.#control, CONTROL.syncDone) >= asked;
  }

  /**
   * Closes what a thread that is over has left open, TCP connections with a reset: when no other worker
   * has done it.
   */
  closeOrphans(): void {
    for (const fd of this.#ledger.list()) {
      this.#ledger.closed(fd);
      closeOrphan(fd);
    }
  }

  #send(make: (id: number) => Command): Promise<Inspection | undefined> {
    if (this.#state === 'over') return Promise.reject(lost(this.#error));
    this.#commands += 1;
    const id = this.#commands;
    const { promise, resolve, reject } = Promise.withResolvers<Inspection | undefined>();
    this.#waiting.set(id, { resolve, reject });
    this.#port.postMessage(make(id), []);
    this.#wake();
    return promise;
  }

  #take(report: Report): void {
    Atomics.add(this.#control, CONTROL.taken, 1);
    if (report.ready !== undefined) {
      this.#steers = report.ready.steers;
      this.#state = 'running';
      this.#start.resolve();
      // For what was sent before it could be woken.
      this.#wake();
    }
    if (report.unfit !== undefined) {
      this.#start.reject(new UnfitError(report.unfit.probe, report.unfit.reason));
    }
    this.#onReport(report);
    for (const { id, error, found } of report.done ?? []) {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) waiting?.resolve(found);
      else waiting?.reject(decodeError(error));
    }
  }

  /** Has it look at the control block and the port. Does nothing before it is ready, nor when it is over. */
  #wake(): void {
    if (this.#state === 'over') return;
    const fd = Atomics.load(this.#control, CONTROL.wakeFd);
    if (fd !== 0) writeSync(fd, WAKE_UP);
    else if (this.#state === 'running')
      this.#port.postMessage({ kind: 'look' } satisfies Notice, []);
  }

  #tellHost(): void {
    if (this.#hostAddresses === undefined || this.#state === 'over') return;
    const addresses = this.#hostAddresses();
    const told = addresses.map(({ address }) => address).join();
    if (told === this.#hostTold) return;
    this.#hostTold = told;
    this.#port.postMessage({ kind: 'host', addresses } satisfies Notice, []);
  }

  #closeWake(): void {
    const fd = Atomics.exchange(this.#control, CONTROL.wakeFd, 0);
    if (fd === 0) return;
    this.#ledger.closed(fd);
    closeSync(fd);
  }

  async #ends(): Promise<Error | undefined> {
    const onProcessExit = (): void => {
      Atomics.store(this.#control, CONTROL.stop, 1);
      this.#wake();
    };
    process.once('exit', onProcessExit);
    this.#worker.on('error', (error) => {
      this.#error = error instanceof Error ? error : new Error(messageOf(error));
    });
    const timer =
      this.#hostAddresses && setInterval(() => this.#tellHost(), ADDRESS_POLL_MS).unref();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#worker.once('exit', () => resolve());
    await promise;
    clearInterval(timer);
    process.off('exit', onProcessExit);
    this.#drain();
    this.#state = 'over';
    this.#closeWake();
    this.#port.close();
    const error = this.#error;
    this.#start.reject(error ?? new Error('the thread ended before it was ready'));
    for (const { reject } of this.#waiting.values()) reject(lost(error));
    this.#waiting.clear();
    return error;
  }

  /** Takes what has been told and not been looked at. */
  #drain(): void {
    for (;;) {
      const received = receiveMessageOnPort(this.#port);
      if (received === undefined) return;
      this.#take(received.message as Report);
    }
  }
}

/** Node has sockets for streams only, and throws for anything else. */
function closeOrphan(fd: number): void {
  try {
    const socket = new Socket({ fd, readable: false, writable: false });
    socket.on('error', () => undefined);
    // One that listens has no peer. It may be shared with another process, whose clients a linger time would reset.
    if (socket.remoteAddress === undefined) socket.destroy();
    else socket.resetAndDestroy();
  } catch {
    try {
      closeSync(fd);
    } catch {
      // It was closed when the thread died in the middle of closing it.
    }
  }
}

/** A command was lost with its worker. */
export class WorkerLost extends KpngError {}

function lost(cause: Error | undefined): WorkerLost {
  const why = cause === undefined ? '' : `: ${cause.message}`;
  return new WorkerLost('KPNG_SINK_FAILED', `a data-plane worker has ended${why}`, { cause });
}
