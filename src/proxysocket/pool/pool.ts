import { extname } from 'node:path';
import { KpngError, messageOf } from '../../errors.ts';
import { DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import { threadModule } from '../../util/bundle.ts';
import { watchSubscribers } from '../../util/channel.ts';
import { inodeOf } from '../../util/inode.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import type { Activity } from '../counters.ts';
import { processDescriptorLimit } from '../core/descriptors.ts';
import { offerSockets } from '../core/inherited.ts';
import type { CounterStore } from '../core/service-port-table.ts';
import type { Engine, NewProcess, ServicePortSnapshot } from '../engine.ts';
import { dataPlaneFault, type DataPlaneFault } from '../events.ts';
import {
  type EndpointSnapshot,
  failingAmong,
  type FailingEndpoints,
  type InspectQuery,
  type Inspection,
  mergeInspections,
} from '../inspect.ts';
import {
  DEFAULT_LIMITS,
  type EngineLimits,
  type LimitChange,
  shareOfDescriptors,
  shareOfLimits,
} from '../limits.ts';
import type { EngineChange } from '../spec.ts';
import { CounterMemory, CounterRows } from './counter-memory.ts';
import { CrashBudget, WorkerSlot } from './worker-slot.ts';
import { CHANNELS, decodeError, decodeMessage, type Batch, type Report } from './protocol.ts';
import { ListeningSockets } from './listening-sockets.ts';
import { ServicePorts } from './service-ports.ts';
import { applyInParts, inParts } from './shared-sockets.ts';
import { PoolWorker, WorkerLost } from './worker.ts';

/** Service ports whose endpoints workers compare in one turn: a few milliseconds of work. */
const COMPARED_AT_ONCE = 100;

/** Time limit for a worker to reset all connections. Milliseconds. */
const LAST_WORDS_MS = 5000;

const MODULE = threadModule(
  'pool-worker',
  new URL(`./main${extname(import.meta.url)}`, import.meta.url),
);

/** Makes an engine for the main thread, with its counters there. */
type MakeFallback = (counters: CounterStore) => Promise<Engine>;

export interface PoolOptions {
  /** Default: 1. */
  readonly workers?: number;
  /** Overrides for individual defaults. */
  readonly limits?: Partial<EngineLimits>;
  /**
   * Returns what makes the fallback engine, which replaces workers that keep crashing, in the main thread. Default: none;
   * workers are restarted without end.
   */
  readonly fallback?: () => MakeFallback | undefined;
  /** Delays before a worker is restarted. */
  readonly backoff?: BackoffPolicy;
  /** The module that worker threads run, for tests. */
  readonly module?: URL;
}

/**
 * The engine on system calls, in one worker thread or several.
 *
 * The main thread keeps everything that survives a worker: the desired state, the listening sockets and the memory
 * of counters. The first worker opens every listening socket, for the others, too; the kernel spreads clients over
 * the sockets of one address (SO_REUSEPORT). A replacement worker gets the same sockets, with the clients in their
 * queues.
 */
export class Pool implements Engine {
  readonly #options: PoolOptions;
  readonly #limits: EngineLimits;
  readonly #descriptorLimit = processDescriptorLimit();
  readonly #memory: CounterMemory;
  readonly #sockets: ListeningSockets;
  readonly #ports: ServicePorts;
  readonly #slots: readonly WorkerSlot[];
  readonly #budget = new CrashBudget();
  readonly #queue = new SerialQueue();
  readonly #ending = new AbortController();
  readonly #unwatch: () => void;
  /** Service ports with listeners that the first worker opened and the others do not know yet. */
  readonly #due = new Set<string>();
  #steers = false;
  /** The first worker has passed all probes; replacements run only the basic ones. */
  #isProven = false;
  /** Set once workers have crashed too often. */
  #falling: Promise<void> | undefined;
  #fallback: Engine | undefined;
  readonly #fallbackRows: CounterRows;
  #closed: Promise<void> | undefined;
  #destroyed: Promise<void> | undefined;

  /** Rejects with an UnfitError that names the failed start-up probe; nothing is left open then. */
  static async start(options: PoolOptions = {}): Promise<Pool> {
    const pool = new Pool(options);
    const started = await Promise.allSettled(pool.#slots.map(({ worker }) => worker.ready));
    for (const slot of pool.#slots) void slot.supervise();
    const failed = started.find((each) => each.status === 'rejected');
    if (failed !== undefined) {
      await pool.destroy();
      throw failed.reason;
    }
    pool.#isProven = true;
    pool.#steers = started.every((each) => each.status === 'fulfilled' && each.value.steers);
    return pool;
  }

  private constructor(options: PoolOptions) {
    const { workers = 1, backoff = DEFAULT_BACKOFF } = options;
    this.#options = options;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    // The fallback engine has its own row.
    this.#memory = new CounterMemory(workers + 1);
    this.#fallbackRows = new CounterRows(workers, workers + 1);
    this.#sockets = new ListeningSockets(workers);
    this.#ports = new ServicePorts(workers, this.#sockets, this.#memory, () => this.#steers);
    this.#slots = Array.from({ length: workers }, (_, index) => {
      return new WorkerSlot({
        backoff,
        ending: this.#ending.signal,
        start: () => this.#newWorker(index, workers),
        onOver: (worker, error) => this.#over(worker, error),
        onReplaced: (worker) => this.#replaced(worker),
      });
    });
    this.#unwatch = watchSubscribers(CHANNELS, () => this.#subscribe());
    this.#subscribe();
  }

  /** Changes when the fallback engine takes over. */
  get kind(): Engine['kind'] {
    return this.#fallback === undefined ? 'linux' : this.#fallback.kind;
  }

  apply(changes: readonly EngineChange[]): Promise<void> {
    return this.#queue.run(async () => {
      this.#checkOpen();
      const { changes: all, unwanted, releases } = this.#ports.note(changes);
      if (unwanted.size > 0) {
        await this.#toOthers((worker) => this.#ports.release(releases(worker.index)));
        this.#sockets.drop(unwanted);
      }
      try {
        await this.#toFirst(all);
      } finally {
        await this.#sendToOthers(all);
        this.#ports.settled(all);
      }
    });
  }

  async setLimits(limits: LimitChange): Promise<void> {
    Object.assign(this.#limits, limits);
    const share = shareOfLimits(limits, this.#slots.length);
    // A worker that starts later begins with them.
    await this.#each((worker) => worker.setLimits(share));
    await this.#fallback?.setLimits?.(limits);
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    const found = this.#ports.snapshot(names);
    if (this.#fallback === undefined) return found;
    const present = new Map(this.#fallback.snapshot(names).map((each) => [each.name, each]));
    return found.map((snapshot) => {
      const { listeners = [], endpoints = 0 } = present.get(snapshot.name) ?? {};
      return Object.assign(snapshot, { listeners, endpoints });
    });
  }

  names(): string[] {
    return this.#ports.names();
  }

  activity(): Activity {
    return this.#ports.activity();
  }

  async inspect(query: InspectQuery): Promise<Inspection> {
    const [found, more] = await Promise.all([
      this.#each((worker) => worker.inspect(query)),
      this.#fallback?.inspect?.(query),
    ]);
    const all = [...found, more].filter((each) => each !== undefined);
    const merged = mergeInspections(all, query.maxConnections);
    if (query.failing !== true || all.length < 2) return merged;
    return { ...merged, failing: await this.#stillFailing([...(merged.failing?.keys() ?? [])]) };
  }

  /** A different worker may have connected to a failed endpoint since. */
  async #stillFailing(names: readonly string[]): Promise<FailingEndpoints> {
    const endpoints: EndpointSnapshot[] = [];
    for (let start = 0; start < names.length; start += COMPARED_AT_ONCE) {
      const servicePorts = names.slice(start, start + COMPARED_AT_ONCE);
      endpoints.push(...(await this.inspect({ servicePorts, maxConnections: 0 })).endpoints);
    }
    return failingAmong(endpoints);
  }

  close(newProcess?: NewProcess): Promise<void> {
    this.#closed ??= this.#end('close', newProcess);
    return this.#closed;
  }

  destroy(): Promise<void> {
    this.#destroyed ??= this.#end('destroy');
    return this.#destroyed;
  }

  /** Ends a worker as a crash would. For tests. */
  async loseWorker(index = 0): Promise<void> {
    await this.#slots[index]?.worker.terminate();
  }

  async #end(how: 'close' | 'destroy', newProcess?: NewProcess): Promise<void> {
    this.#ending.abort();
    // A fallback engine that is starting has to be ended as well.
    await this.#falling;
    const workers = this.#slots.map(({ worker }) => worker);
    const terminate = (): void => {
      for (const worker of workers) void worker.terminate();
    };
    const timer = how === 'close' ? undefined : setTimeout(terminate, LAST_WORDS_MS);
    await Promise.all([
      this.#each((worker) => worker[how](newProcess)),
      this.#fallback?.[how](newProcess),
    ]);
    await Promise.all(workers.map(({ over }) => over));
    clearTimeout(timer);
    this.#unwatch();
    for (const worker of workers) this.#sweep(worker);
    this.#sockets.close();
    this.#ports.clear();
  }

  #newWorker(index: number, workers: number): PoolWorker {
    const { reservedDescriptors } = this.#limits;
    const worker: PoolWorker = new PoolWorker({
      module: this.#options.module ?? MODULE,
      index,
      rows: this.#memory.rows,
      isProven: index > 0 || this.#isProven,
      limits: shareOfLimits(this.#limits, workers),
      descriptorLimit: this.#descriptorLimit,
      descriptorShare: shareOfDescriptors(this.#descriptorLimit, reservedDescriptors, workers),
      onReport: (report) => this.#take(report, worker),
    });
    return worker;
  }

  /** A worker has ended; resolves with whether to replace it. */
  async #over(worker: PoolWorker, error: Error | undefined): Promise<boolean> {
    this.#sweep(worker);
    if (this.#ending.signal.aborted || this.#falling !== undefined) return false;
    this.#budget.add(performance.now());
    publishFault('worker-lost', error ?? new Error('the thread has ended'));
    const make = this.#budget.isSpent ? this.#options.fallback?.() : undefined;
    if (make === undefined) return true;
    this.#falling = this.#fallBack(make);
    await this.#falling;
    return false;
  }

  /** Connections of an ended worker are reset; its listening sockets stay for the next one. */
  #sweep(worker: PoolWorker): void {
    worker.closeOrphans(this.#sockets.lost(worker));
    this.#memory.dropRow(worker.index);
  }

  #replaced(worker: PoolWorker): void {
    this.#subscribe();
    // On failure, the worker has died again.
    worker.apply(this.#ports.everything(worker)).catch((error: unknown) => {
      if (!(error instanceof WorkerLost)) publishFault('internal-error', asError(error));
    });
  }

  /** The fallback engine takes over with the same sockets. Living workers keep their connections. */
  async #fallBack(make: MakeFallback): Promise<void> {
    const copies = new Map<number, number>();
    await this.#each(async (worker) => {
      const fds = this.#sockets.heldBy(worker);
      const duplicates = await worker.duplicate(fds);
      for (const [index, fd] of fds.entries()) copies.set(fd, duplicates[index] ?? -1);
    });
    const sockets = this.#sockets.takeSockets(copies);
    const served = new Set(sockets.flatMap(({ fd }) => inodeOf(fd) ?? []));
    for (const { worker } of this.#slots) worker.close({ served }).catch(() => undefined);
    try {
      offerSockets(sockets, this.#sockets.ports());
      const engine = await make(this.#fallbackRows);
      publishFault('fallback', new Error(`the ${engine.kind} engine takes over`));
      this.#fallback = engine;
      await this.#toFallback(this.#ports.specs().map((spec) => ({ kind: 'set', spec })));
      await engine.setLimits?.(this.#limits);
    } catch (error) {
      publishFault('internal-error', asError(error));
    }
  }

  async #toFallback(changes: readonly EngineChange[]): Promise<void> {
    this.#fallbackRows.assign(this.#memory.blocks, this.#ports.freed);
    await this.#fallback?.apply(this.#ports.located(changes));
  }

  /** The batch is applied even if the first worker dies, unless the pool ends. */
  async #toFirst(changes: readonly EngineChange[]): Promise<void> {
    for (let wanted = changes; ; wanted = this.#ports.stillWanted(changes)) {
      const worker = await this.#slots[0]?.current();
      await this.#falling;
      this.#checkOpen();
      if (worker === undefined || this.#falling !== undefined) return this.#toFallback(wanted);
      try {
        await applyInParts(wanted, (part) => worker.apply(this.#ports.batch(worker, part)));
        return;
      } catch (error) {
        if (!(error instanceof WorkerLost)) throw error;
      }
    }
  }

  async #sendToOthers(changes: readonly EngineChange[]): Promise<void> {
    const due = [...this.#due];
    this.#due.clear();
    if (changes.length + due.length === 0) return;
    const [first = [], ...rest] = inParts(changes);
    await this.#toOthers((worker) => this.#ports.batch(worker, first, due));
    for (const part of rest) await this.#toOthers((worker) => this.#ports.batch(worker, part));
  }

  /** All workers but the first. If one dies meanwhile, its replacement gets the whole state. */
  async #toOthers(make: (worker: PoolWorker) => Batch): Promise<void> {
    if (this.#falling !== undefined) return;
    await this.#each(async (worker) => {
      if (worker.index > 0) await worker.apply(make(worker));
    });
  }

  /** Of every worker that still runs. */
  async #each<T>(command: (worker: PoolWorker) => Promise<T>): Promise<(T | undefined)[]> {
    return Promise.all(
      this.#slots.map(async ({ worker }) => {
        try {
          return await command(worker);
        } catch (error) {
          if (error instanceof WorkerLost) return undefined;
          throw error;
        }
      }),
    );
  }

  #take(report: Report, worker: PoolWorker): void {
    for (const opened of report.opened ?? []) this.#sockets.opened(worker, opened);
    for (const state of report.states ?? []) {
      if (this.#ports.report(state) && this.#slots.length > 1) this.#due.add(state.name);
    }
    if (this.#due.size > 0)
      void this.#queue.run(() => this.#sendToOthers([])).catch(() => undefined);
    for (const [channel, message] of report.events ?? []) {
      CHANNELS[channel]?.publish(decodeMessage(message));
    }
    for (const fault of report.faults ?? []) publishFault('internal-error', decodeError(fault));
    if (report.eventsDropped !== undefined) {
      publishFault('events-dropped', new Error(`${report.eventsDropped} events were left out`));
    }
  }

  #subscribe(): void {
    let bits = 0;
    for (const [index, channel] of CHANNELS.entries()) {
      if (channel.hasSubscribers) bits |= 1 << index;
    }
    for (const { worker } of this.#slots) worker.subscriptions = bits;
  }

  #checkOpen(): void {
    if (!this.#ending.signal.aborted) return;
    throw new KpngError('KPNG_SINK_FAILED', 'the engine is closed');
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(messageOf(error));
}

function publishFault(what: DataPlaneFault['what'], error: Error): void {
  if (dataPlaneFault.hasSubscribers) dataPlaneFault.publish({ what, error });
}
