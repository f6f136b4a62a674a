import { setTimeout as delay } from 'node:timers/promises';
import { KpngError, messageOf } from '../../errors.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import { threadModule } from '../../util/bundle.ts';
import { watchSubscribers } from '../../util/channel.ts';
import { inodeOf } from '../../util/socket-file.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import type { Activity } from '../counters.ts';
import { processDescriptorLimit } from '../core/descriptors.ts';
import { offerSockets } from '../core/inherited.ts';
import { applyInParts } from '../core/shared-service-ports.ts';
import type { NewCounters } from '../core/service-port-table.ts';
import type { Engine, NewProcess, ServicePortSnapshot } from '../engine.ts';
import { dataPlaneFault, type DataPlaneFault } from '../events.ts';
import {
  type EndpointSnapshot,
  failingAmong,
  type FailingEndpoints,
  type InspectQuery,
  type Inspection,
  mergeInspections,
  NOTHING,
} from '../inspect.ts';
import {
  DEFAULT_LIMITS,
  type EngineLimits,
  type LimitChange,
  shareOfDescriptors,
  shareOfLimits,
} from '../limits.ts';
import type { EngineChange } from '../spec.ts';
import { sharedCounters } from './counter-memory.ts';
import { CHANNELS, decodeError, decodeMessage, type Report } from './protocol.ts';
import { ListeningSockets } from './listening-sockets.ts';
import { ServicePorts } from './service-ports.ts';
import { CrashBudget, PoolWorker, WorkerLost } from './worker.ts';

/** Service ports whose endpoints workers compare in one turn: a few milliseconds of work. */
const COMPARED_AT_ONCE = 100;

/** Time limit for a worker to reset all connections. Milliseconds. */
const LAST_WORDS_MS = 5000;

/** A worker that dies sooner than this is replaced with a delay. Milliseconds. */
const YOUNG_MS = 10_000;

const MODULE = threadModule('pool-worker', 'main', import.meta.url);

type MakeFallback = (counters: NewCounters) => Promise<Engine>;

export interface PoolOptions {
  readonly workers?: number;
  readonly limits?: Partial<EngineLimits>;
  /** Makes the fallback engine, once workers keep crashing. Default: none; workers are restarted without end. */
  readonly fallback?: () => MakeFallback | undefined;
  readonly backoff?: BackoffPolicy;
  /** The module that worker threads run, for tests. */
  readonly module?: URL;
}

/**
 * The engine on system calls, in one worker thread or several. The main thread keeps what survives a worker: the
 * desired state, the listening sockets and the counters. The first worker opens all sockets; the kernel spreads clients
 * over those of one address (SO_REUSEPORT). A replacement gets the same, with the clients in their queues.
 */
export class Pool implements Engine {
  readonly #options: PoolOptions;
  readonly #limits: EngineLimits;
  readonly #descriptorLimit = processDescriptorLimit();
  readonly #sockets: ListeningSockets;
  readonly #ports: ServicePorts;
  /** By index; of one that has ended, the last. */
  readonly #workers: PoolWorker[];
  readonly #queue = new SerialQueue();
  readonly #ending = new AbortController();
  readonly #unwatch: () => void;
  /** Service ports with listeners that the first worker opened and the others do not know yet. */
  readonly #due = new Set<string>();
  /** The first worker has passed all probes; replacements run only the basic ones. */
  #isProven = false;
  readonly #crashes = new CrashBudget();
  #falling: Promise<void> | undefined;
  #fallback: Engine | undefined;
  #closed: Promise<void> | undefined;
  #destroyed: Promise<void> | undefined;

  /** Rejects with an UnfitError that names the failed start-up probe; nothing is left open then. */
  static async start(options: PoolOptions = {}): Promise<Pool> {
    const pool = new Pool(options);
    const started = await Promise.allSettled(
      pool.#workers.map((worker) => worker.run({ kind: 'start' })),
    );
    for (const worker of pool.#workers) void pool.#supervise(worker);
    const failed = started.find((each) => each.status === 'rejected');
    if (failed !== undefined) {
      await pool.destroy();
      const { reason } = failed as { readonly reason: Error };
      throw reason.cause ?? reason;
    }
    pool.#isProven = true;
    pool.#ports.isSteered = started.every(
      (each) => each.status === 'fulfilled' && each.value.steers === true,
    );
    return pool;
  }

  private constructor(options: PoolOptions) {
    const { workers = 1 } = options;
    this.#options = options;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.#sockets = new ListeningSockets(workers);
    this.#ports = new ServicePorts(workers, this.#sockets);
    this.#workers = Array.from({ length: workers }, (_, index) => this.#newWorker(index, workers));
    this.#unwatch = watchSubscribers(CHANNELS, () => this.#subscribe());
    this.#subscribe();
  }

  get kind(): Engine['kind'] {
    return this.#fallback?.kind ?? 'linux';
  }

  apply(changes: readonly EngineChange[]): Promise<void> {
    return this.#queue.run(async () => {
      this.#checkOpen();
      const { changes: all, leaves } = this.#ports.note(changes);
      // An address is free once no worker has it. The first worker says what is wrong with a batch.
      if (leaves) await this.#toOthers(all).catch(() => undefined);
      try {
        await this.#toFirst(all);
      } finally {
        await this.#toOthers(leaves ? [] : all);
        this.#ports.settled(all);
      }
    });
  }

  async setLimits(limits: LimitChange): Promise<void> {
    Object.assign(this.#limits, limits);
    const share = shareOfLimits(limits, this.#workers.length);
    // A worker that starts later begins with them.
    await this.#each((worker) => worker.run({ kind: 'limits', limits: share }));
    await this.#fallback?.setLimits?.(limits);
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    const found = this.#ports.snapshot(names);
    if (this.#fallback === undefined) return found;
    const present = new Map(this.#fallback.snapshot(names).map((each) => [each.name, each]));
    return found.map((snapshot) =>
      Object.assign(snapshot, { listeners: present.get(snapshot.name)?.listeners ?? [] }),
    );
  }

  names(): string[] {
    return this.#ports.names();
  }

  activity(): Activity {
    return this.#ports.activity();
  }

  async inspect(query: InspectQuery): Promise<Inspection> {
    const [found, more] = await Promise.all([
      this.#each(async (worker) => (await worker.run({ kind: 'inspect', query })).found ?? NOTHING),
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
    await this.#workers[index]?.terminate();
  }

  async #end(how: 'close' | 'destroy', newProcess?: NewProcess): Promise<void> {
    this.#ending.abort();
    // A fallback engine that is starting has to be ended as well.
    await this.#falling;
    const workers = [...this.#workers];
    const terminate = (): void => workers.forEach((worker) => void worker.terminate());
    const timer = how === 'destroy' ? setTimeout(terminate, LAST_WORDS_MS) : undefined;
    await Promise.all([
      this.#each((worker) => worker.run({ kind: how, newProcess })),
      this.#fallback?.[how](newProcess),
    ]);
    await Promise.all(workers.map(({ over }) => over));
    clearTimeout(timer);
    this.#unwatch();
    for (const worker of workers) this.#sweep(worker);
    this.#sockets.retain(new Set());
    this.#ports.clear();
  }

  #newWorker(index: number, workers: number): PoolWorker {
    const { reservedDescriptors } = this.#limits;
    const processLimit = this.#descriptorLimit;
    const worker: PoolWorker = new PoolWorker({
      module: this.#options.module ?? MODULE,
      processLimit,
      start: {
        index,
        isProven: index > 0 || this.#isProven,
        limits: shareOfLimits(this.#limits, workers),
        descriptorLimit: shareOfDescriptors(processLimit, reservedDescriptors, workers),
      },
      onReport: (report) => this.#take(report, worker),
    });
    return worker;
  }

  /** Replaces a worker, and each of its replacements, when it dies. Must not reject. */
  async #supervise(first: PoolWorker): Promise<void> {
    const { backoff = DEFAULT_BACKOFF } = this.#options;
    const { signal } = this.#ending;
    const waits = new Backoff(backoff, Math.random);
    for (let worker = first; ;) {
      const since = performance.now();
      const mayReplace = await this.#over(worker, await worker.over);
      if (mayReplace && performance.now() - since < YOUNG_MS)
        await delay(waits.next(), undefined, { signal }).catch(() => undefined);
      else waits.reset();
      if (!mayReplace || signal.aborted) {
        worker.replaced.resolve();
        return;
      }
      const next = this.#newWorker(first.index, this.#workers.length);
      this.#workers[first.index] = next;
      this.#subscribe();
      worker.replaced.resolve(this.#begin(next));
      worker = next;
    }
  }

  /** A worker has ended; resolves with whether to replace it. */
  async #over(worker: PoolWorker, error: Error | undefined): Promise<boolean> {
    this.#sweep(worker);
    if (this.#ending.signal.aborted || this.#falling !== undefined) return false;
    publishFault('worker-lost', error ?? 'the thread has ended');
    const isSpent = this.#crashes.add(performance.now());
    const make = isSpent ? this.#options.fallback?.() : undefined;
    if (make === undefined) return true;
    this.#falling = this.#fallBack(make);
    await this.#falling;
    return false;
  }

  /** Connections of an ended worker are reset; its listening sockets stay for the next one. */
  #sweep(worker: PoolWorker): void {
    worker.closeOrphans(this.#sockets.lost(worker));
    this.#ports.countsNoMore(worker);
  }

  /** Sends the whole state to a replacement. Resolves when it has it, or the one after it. */
  async #begin(worker: PoolWorker): Promise<void> {
    // Its predecessor may have died before it closed them.
    if (worker.index === 0) this.#sockets.retain(this.#ports.keys());
    try {
      await worker.run({ kind: 'apply', ...this.#ports.batch(worker, this.#ports.sets()) });
    } catch (error) {
      if (error instanceof WorkerLost) await worker.replaced.promise;
      else publishFault('internal-error', error);
    }
  }

  /** The fallback engine takes over with the same sockets. Living workers keep their connections. */
  async #fallBack(make: MakeFallback): Promise<void> {
    this.#sockets.retain(this.#ports.keys());
    const ports = this.#sockets.ports();
    const sockets = await this.#sockets.takeAll();
    const newProcess = { served: new Set(sockets.flatMap(({ fd }) => inodeOf(fd) ?? [])) };
    for (const worker of this.#workers)
      worker.run({ kind: 'close', newProcess }).catch(() => undefined);
    try {
      offerSockets(sockets, ports);
      const counters = sharedCounters((...row) => this.#ports.counts(this, ...row));
      const engine = await make(counters);
      publishFault('fallback', `the ${engine.kind} engine takes over`);
      this.#fallback = engine;
      await engine.apply(this.#ports.sets());
      await engine.setLimits?.(this.#limits);
    } catch (error) {
      publishFault('internal-error', error);
    }
  }

  /** The batch is applied even if the first worker dies, unless the pool ends: its replacement gets the whole state. */
  async #toFirst(changes: readonly EngineChange[]): Promise<void> {
    const [worker] = this.#workers;
    if (worker !== undefined && this.#falling === undefined) {
      try {
        await this.#toWorker(worker, changes);
        return;
      } catch (error) {
        if (!(error instanceof WorkerLost)) throw error;
        await worker.replaced.promise;
      }
    }
    await this.#falling;
    this.#checkOpen();
    await this.#fallback?.apply(changes);
  }

  /** All workers but the first. If one dies meanwhile, its replacement gets the whole state. */
  async #toOthers(changes: readonly EngineChange[]): Promise<void> {
    const all = [...changes, ...this.#ports.sets(this.#due)];
    this.#due.clear();
    if (all.length === 0 || this.#falling !== undefined) return;
    await this.#each(async (worker) => {
      if (worker.index > 0) await this.#toWorker(worker, all);
    });
  }

  #toWorker(worker: PoolWorker, changes: readonly EngineChange[]): Promise<void> {
    return applyInParts(changes, async (part) => {
      await worker.run({ kind: 'apply', ...this.#ports.batch(worker, part) });
    });
  }

  async #each<T>(command: (worker: PoolWorker) => Promise<T>): Promise<(T | undefined)[]> {
    return Promise.all(
      this.#workers.map(async (worker) => {
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
    if (report.kind === 'counts') this.#ports.counts(worker, report.slot, report.memory);
    if (report.kind !== 'turn') return;
    for (const key of report.closed) this.#sockets.closed(key);
    for (const opened of report.opened) this.#sockets.opened(worker, opened);
    for (const state of report.states) {
      if (this.#ports.report(state) && this.#workers.length > 1) this.#due.add(state.name);
    }
    if (this.#due.size > 0) void this.#queue.run(() => this.#toOthers([])).catch(() => undefined);
    for (const [channel, message] of report.events)
      CHANNELS[channel]?.publish(decodeMessage(message));
    for (const fault of report.faults) publishFault('internal-error', decodeError(fault));
    if (report.eventsDropped > 0)
      publishFault('events-dropped', `${report.eventsDropped} events were left out`);
  }

  #subscribe(): void {
    const bits = CHANNELS.map(({ hasSubscribers }, index) => (hasSubscribers ? 1 << index : 0));
    const all = bits.reduce((sum, bit) => sum | bit, 0);
    for (const worker of this.#workers) worker.subscriptions = all;
  }

  #checkOpen(): void {
    if (!this.#ending.signal.aborted) return;
    throw new KpngError('KPNG_SINK_FAILED', 'the engine is closed');
  }
}

function publishFault(what: DataPlaneFault['what'], reason: unknown): void {
  if (!dataPlaneFault.hasSubscribers) return;
  const error = reason instanceof Error ? reason : new Error(messageOf(reason));
  dataPlaneFault.publish({ what, error });
}
