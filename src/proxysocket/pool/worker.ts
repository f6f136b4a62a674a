import { closeSync, writeSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { messageOf } from '../../errors.ts';
import { DescriptorLedger, ledgerMemory } from '../linux/sys/memory.ts';
import type { Sys } from '../linux/sys/sys.ts';
import {
  decodeError,
  CONTROL,
  CONTROL_BYTES,
  type Command,
  type Done,
  type NumberedCommand,
  type Report,
  type WorkerStart,
} from './protocol.ts';

const WAKE_UP = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);

/** What wakes workers. Throws the system's error; nothing is left open then. */
export function wakeUps(sys: Sys, count: number): number[] {
  const fds: number[] = [];
  try {
    while (fds.length < count) fds.push(sys.wakeUp());
    return fds;
  } catch (error) {
    for (const fd of fds) closeSync(fd);
    throw error;
  }
}

interface PoolWorkerOptions {
  readonly module: URL;
  /** Worker 0 makes the probes. */
  readonly index: number;
  readonly start: Omit<WorkerStart, 'control' | 'ledger'>;
  readonly processLimit: number;
  /** Called with every report of the worker, before its commands settle. */
  readonly onReport: (report: Report) => void;
}

/**
 * One worker thread, as the main thread sees it. Commands run in order, including those sent before it was ready. It
 * blocks in the kernel; its eventfd wakes it for every command, and when the process ends, since Node waits for
 * threads.
 */
export class PoolWorker {
  readonly index: number;
  /** Resolves when the thread has ended, with the error that ended it, or undefined. */
  readonly over: Promise<Error | undefined>;
  /** Resolves, once the thread has ended, when another one has the whole state, or none will. For the owner to settle. */
  readonly replaced = Promise.withResolvers<boolean | void>();
  readonly #worker: Worker;
  readonly #control = new Int32Array(new SharedArrayBuffer(CONTROL_BYTES));
  readonly #ledger: DescriptorLedger;
  readonly #wakeFd: number;
  readonly #onReport: (report: Report) => void;
  readonly #waiting = new Map<number, PromiseWithResolvers<Done | undefined>>();
  #isOver = false;
  #commands = 0;
  #error: Error | undefined;

  constructor(options: PoolWorkerOptions) {
    this.index = options.index;
    this.#wakeFd = options.start.wakeFd;
    this.#onReport = options.onReport;
    const ledger = ledgerMemory(options.processLimit);
    this.#ledger = new DescriptorLedger(ledger);
    const workerData: WorkerStart = { ...options.start, control: this.#control.buffer, ledger };
    this.#worker = compileInPlace(
      () =>
        new Worker(options.module, {
          name: 'kpng-userspace data plane',
          workerData,
          // Node's warning that `node:ffi` is experimental; the probes cover that.
          execArgv: ['--disable-warning=ExperimentalWarning'],
        }),
    );
    this.over = this.#ends();
    this.#worker.on('message', (report: Report) => this.#take(report));
  }

  get descriptorsUsed(): number {
    return Atomics.load(this.#control, CONTROL.used);
  }

  set subscriptions(bits: number) {
    if (Atomics.exchange(this.#control, CONTROL.subscriptions, bits) !== bits) this.#wake();
  }

  /** Resolves with undefined if the thread ends before it has done so. Rejects with the error of the command. */
  async run(command: Command): Promise<Done | undefined> {
    if (this.#isOver) return undefined;
    this.#commands += 1;
    const id = this.#commands;
    const waiting = Promise.withResolvers<Done | undefined>();
    this.#waiting.set(id, waiting);
    this.#worker.postMessage({ ...command, id } satisfies NumberedCommand, []);
    this.#wake();
    return waiting.promise;
  }

  /** Terminates the thread. Its descriptors stay open: see `closeOrphans`. */
  async terminate(): Promise<void> {
    Atomics.store(this.#control, CONTROL.stop, 1);
    this.#wake();
    await this.#worker.terminate();
  }

  /** It gets a socket, which is an orphan if the thread ends before it takes it. */
  gets(fd: number): void {
    this.#ledger.opened(fd);
  }

  /** Closes the descriptors that an ended thread left open, with exceptions: connections with a reset. */
  closeOrphans(sys: Sys, kept: ReadonlySet<number>): void {
    for (const fd of this.#ledger.list()) {
      this.#ledger.closed(fd);
      if (kept.has(fd)) continue;
      // A listening socket has no peer and may be shared with another process, whose clients a linger time would reset.
      if (sys.remoteAddress(fd) === undefined) sys.close(fd);
      else sys.reset(fd);
    }
  }

  #take(report: Report): void {
    this.#onReport(report);
    if (report.kind !== 'turn') return;
    Atomics.add(this.#control, CONTROL.taken, 1);
    for (const done of report.done) {
      const waiting = this.#waiting.get(done.id);
      this.#waiting.delete(done.id);
      if (done.error === undefined) waiting?.resolve(done);
      else waiting?.reject(decodeError(done.error));
    }
  }

  /** Wakes the thread to read the control block and the port, now or once it is ready. */
  #wake(): void {
    if (!this.#isOver) writeSync(this.#wakeFd, WAKE_UP);
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
    await new Promise((resolve) => this.#worker.once('exit', resolve));
    process.off('exit', onProcessExit);
    this.#isOver = true;
    for (const { resolve } of this.#waiting.values()) resolve(undefined);
    this.#waiting.clear();
    return this.#error;
  }
}

const MAX_CRASHES = 3;
const CRASH_WINDOW_MS = 60_000;

/** Counts the crashes of workers, to detect that restarting is useless. */
export class CrashBudget {
  #at: readonly number[] = [];

  /** A worker crashed or did not start; returns whether that is once too often. `now` in milliseconds. */
  add(now: number): boolean {
    this.#at = [...this.#at.filter((at) => now - at <= CRASH_WINDOW_MS), now];
    return this.#at.length >= MAX_CRASHES;
  }
}

let starting = 0;

/**
 * Starts a worker in whose thread V8 optimises functions synchronously, for a few milliseconds. Node 26.10 dies of
 * SIGSEGV or SIGTRAP when a thread ends while its calls of `node:ffi` are being optimised in another one. V8 reads the
 * flag once for each thread, before it runs any code.
 */
export function compileInPlace(create: () => Worker): Worker {
  const { promise, resolve } = Promise.withResolvers<void>();
  void promise.then(() => {
    starting -= 1;
    if (starting === 0) setFlagsFromString('--concurrent-recompilation');
  });
  starting += 1;
  setFlagsFromString('--no-concurrent-recompilation');
  try {
    return create()
      .once('online', () => resolve())
      .once('exit', () => resolve());
  } catch (error) {
    resolve();
    throw error;
  }
}
