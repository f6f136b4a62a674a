import { closeSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { KpngError } from '../../errors.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import { threadModule } from '../../util/bundle.ts';
import { watchSubscribers } from '../../util/channel.ts';
import { systemClock } from '../../util/clock.ts';
import { inodeOf } from '../../util/socket-file.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import type { Activity, NewCounters } from '../counters.ts';
import { ProcessDescriptors, processDescriptorLimit } from '../core/descriptors.ts';
import { offerPorts, offerSockets } from '../../util/inherited.ts';
import { ListenerTable } from '../core/listener-table.ts';
import { inParts } from '../core/shared-service-ports.ts';
import type { Engine, NewProcess, ServicePortSnapshot } from '../engine.ts';
import {
  type EndpointSnapshot,
  failingAmong,
  type FailingEndpoints,
  type InspectQuery,
  type Inspection,
  mergeInspections,
} from '../inspect.ts';
import { canSteer } from '../linux/open-listener.ts';
import { probePlatform } from '../linux/sys/library.ts';
import { Sys } from '../linux/sys/sys.ts';
import { DEFAULT_LIMITS, type EngineLimits, type LimitChange, shareOfLimits } from '../limits.ts';
import type { EngineChange } from '../spec.ts';
import { sharedCounters, type ServicePortRecord } from './counter-memory.ts';
import { CHANNELS, decodeMessage, publishFault, type Command, type Report } from './protocol.ts';
import { PoolListener } from './listening-sockets.ts';
import { ServicePorts } from './service-ports.ts';
import { CrashBudget, PoolWorker, wakeUps } from './worker.ts';

/** Service ports whose endpoints workers compare in one turn: a few milliseconds of work. */
const COMPARED_AT_ONCE = 100;

/** Time limit for a worker to reset all connections. Milliseconds. */
const LAST_WORDS_MS = 5000;

/** A worker that dies sooner than this is replaced with a delay. Milliseconds. */
const YOUNG_MS = 10_000;

const MODULE = threadModule('pool-worker', 'thread', import.meta.url);

export interface PoolOptions {
  readonly workers?: number;
  readonly limits?: Partial<EngineLimits>;
  /**
   * Makes the fallback engine, once workers keep crashing; undefined, as by default: there is none, and workers are
   * restarted without end.
   */
  readonly fallback?: (counters: NewCounters) => Promise<Engine> | undefined;
  readonly backoff?: BackoffPolicy;
  /** The module that worker threads run, for tests. */
  readonly module?: URL;
}

/**
 * The engine on system calls, in one worker thread or several. The main thread keeps what survives a worker: the
 * desired state, the listening sockets and the counters. It opens a socket for each worker at each address, over which
 * the kernel spreads clients (SO_REUSEPORT). A replacement gets the same, with the clients in their queues.
 */
export class Pool implements Engine {
  readonly #options: PoolOptions;
  readonly #sys: Sys;
  /** What wakes each worker and its replacements. */
  readonly #wakeFds: number[];
  readonly #limits: EngineLimits;
  readonly #descriptorLimit = processDescriptorLimit();
  readonly #listeners: ListenerTable<ServicePortRecord, PoolListener>;
  readonly #ports: ServicePorts;
  /** By index; of one that has ended, the last. */
  readonly #workers: PoolWorker[];
  readonly #queue = new SerialQueue();
  readonly #ending = new AbortController();
  readonly #unwatch: () => void;
  /** Service ports with new listeners that workers do not have yet. */
  readonly #due = new Set<string>();
  /** The first worker has passed the probes; replacements make none. */
  #isProven = false;
  readonly #crashes = new CrashBudget();
  #falling: Promise<void> | undefined;
  #fallback: Engine | undefined;
  #closed: Promise<void> | undefined;
  #destroyed: Promise<void> | undefined;

  /** Rejects with an UnfitError that names the failed start-up probe; nothing is left open then. */
  static async start(options: PoolOptions = {}): Promise<Pool> {
    const pool = new Pool(options, new Sys(await probePlatform()));
    const started = await Promise.all(
      pool.#workers.map((worker) => worker.run({ kind: 'limits', limits: {} })),
    );
    for (const worker of pool.#workers) void pool.#supervise(worker);
    const failed = pool.#workers[started.indexOf(undefined)];
    if (failed !== undefined) {
      await pool.destroy();
      throw (await failed.over) ?? new Error('a data-plane worker has ended');
    }
    pool.#isProven = true;
    return pool;
  }

  private constructor(options: PoolOptions, sys: Sys) {
    // Otherwise each worker would choose another endpoint for a client with affinity.
    const workers = canSteer(sys) ? (options.workers ?? 1) : 1;
    this.#options = options;
    this.#sys = sys;
    this.#wakeFds = wakeUps(sys, workers);
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    const opener = {
      sys,
      limits: this.#limits,
      workers,
      opened: ({ name }: ServicePortRecord) => this.#opened(name),
    };
    this.#listeners = new ListenerTable({
      kind: 'linux',
      clock: systemClock,
      random: Math.random,
      queue: this.#queue,
      // Each worker has a descriptor of each listener.
      descriptors: new ProcessDescriptors({
        limit: this.#descriptorShare(workers),
        reserve: this.#limits.reservedDescriptors,
        usedElsewhere: () => Math.max(...this.#workers.map((worker) => worker.descriptorsUsed)),
      }),
      newListener: (listen, owner) => new PoolListener(opener, listen, owner),
    });
    this.#ports = new ServicePorts(this.#listeners);
    this.#workers = Array.from({ length: workers }, (_, index) => this.#newWorker(index, workers));
    this.#unwatch = watchSubscribers(() => this.#subscribe());
    this.#subscribe();
  }

  get kind(): Engine['kind'] {
    return this.#fallback?.kind ?? 'linux';
  }

  /** One if the kernel cannot spread clients by address. */
  get workers(): number {
    return this.#workers.length;
  }

  apply(changes: readonly EngineChange[]): Promise<void> {
    return this.#queue.run(async () => {
      this.#checkOpen();
      const { changes: all, leaves } = this.#ports.note(changes);
      try {
        // An address is free once no worker has it.
        if (leaves) await this.#toAll(all);
        await this.#listeners.settle();
        if (!leaves) await this.#toAll(all);
        else if (this.#due.size > 0) await this.#toAll([]);
      } finally {
        this.#ports.table.forget();
      }
    });
  }

  async setLimits(limits: LimitChange): Promise<void> {
    Object.assign(this.#limits, limits);
    const share = shareOfLimits(limits, this.#workers.length);
    // A worker that starts later begins with them.
    await this.#each({ kind: 'limits', limits: share });
    await this.#fallback?.setLimits?.(limits);
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    const found = this.#ports.table.snapshot(names);
    if (this.#fallback === undefined) return found;
    const present = new Map(this.#fallback.snapshot(names).map((each) => [each.name, each]));
    return found.map((snapshot) =>
      Object.assign(snapshot, { listeners: present.get(snapshot.name)?.listeners ?? [] }),
    );
  }

  names(): string[] {
    return this.#ports.table.names();
  }

  activity(): Activity {
    return this.#ports.table.activity();
  }

  async inspect(query: InspectQuery): Promise<Inspection> {
    const [found, more] = await Promise.all([
      this.#each({ kind: 'inspect', query }),
      this.#fallback?.inspect?.(query),
    ]);
    const all = [...found.map((each) => each?.found), more].filter((each) => each !== undefined);
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
    this.#listeners.end();
    // A fallback engine that is starting has to be ended as well.
    await this.#falling;
    const workers = [...this.#workers];
    const terminate = (): void => workers.forEach((worker) => void worker.terminate());
    const timer = how === 'destroy' ? setTimeout(terminate, LAST_WORDS_MS) : undefined;
    await Promise.all([
      this.#each({ kind: how, newProcess }),
      this.#fallback?.[how](newProcess),
      this.#listeners.close(),
    ]);
    await Promise.all(workers.map(({ over }) => over));
    clearTimeout(timer);
    this.#unwatch();
    for (const fd of this.#wakeFds.splice(0)) closeSync(fd);
    this.#ports.table.clear();
  }

  #newWorker(index: number, workers: number): PoolWorker {
    const worker: PoolWorker = new PoolWorker({
      module: this.#options.module ?? MODULE,
      processLimit: this.#descriptorLimit,
      index,
      start: {
        wakeFd: this.#wakeFds[index] ?? -1,
        isProven: index > 0 || this.#isProven,
        limits: shareOfLimits(this.#limits, workers),
        descriptorLimit: this.#descriptorShare(workers),
      },
      onReport: (report) => this.#take(report, worker),
    });
    return worker;
  }

  /** How many descriptors each worker may count with; the reserve is that of all of them. */
  #descriptorShare(workers: number): number {
    const { reservedDescriptors: reserve } = this.#limits;
    return reserve + Math.floor(Math.max(0, this.#descriptorLimit - reserve) / workers);
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
      const begun = this.#toWorker(next, this.#ports.sets());
      worker.replaced.resolve(begun.catch((error) => publishFault('internal-error', error)));
      worker = next;
    }
  }

  /** A worker has ended; resolves with whether to replace it. */
  async #over(worker: PoolWorker, error: Error | undefined): Promise<boolean> {
    // Its connections are reset; its listening sockets stay for the next one.
    const kept = [...this.#listeners.open()].flatMap(({ listener }) => listener.lost(worker));
    worker.closeOrphans(this.#sys, new Set(kept));
    this.#ports.countsNoMore(worker);
    if (this.#ending.signal.aborted || this.#falling !== undefined) return false;
    publishFault('worker-lost', error ?? 'the thread has ended');
    if (!this.#crashes.add(performance.now())) return true;
    const counters = sharedCounters((...row) => this.#ports.counts(this, ...row));
    const engine = this.#options.fallback?.(counters);
    if (engine === undefined) return true;
    this.#falling = this.#fallBack(engine);
    await this.#falling;
    return false;
  }

  /** The fallback engine takes over with the same sockets. Living workers keep their connections. */
  async #fallBack(making: Promise<Engine>): Promise<void> {
    const open = [...this.#listeners.open()];
    offerPorts(open.map(({ key, listener }) => [key, listener.boundPort]));
    const sockets = open.flatMap(({ listener }) => listener.takeAll());
    const newProcess = { served: new Set(sockets.flatMap(({ fd }) => inodeOf(fd) ?? [])) };
    const closing = this.#each({ kind: 'close', newProcess });
    closing.catch(() => undefined);
    try {
      const [engine] = await Promise.all([making, this.#listeners.close()]);
      offerSockets(sockets);
      publishFault('fallback', `the ${engine.kind} engine takes over`);
      this.#fallback = engine;
      await engine.apply(this.#ports.sets());
      await engine.setLimits?.(this.#limits);
    } catch (error) {
      publishFault('internal-error', error);
    }
  }

  /** The batch is applied even if a worker dies, unless the pool ends: its replacement gets the whole state. */
  async #toAll(changes: readonly EngineChange[]): Promise<void> {
    for (const change of changes) if (change.kind === 'set') this.#due.delete(change.spec.name);
    const all = [...changes, ...this.#ports.sets(this.#due)];
    this.#due.clear();
    if (this.#falling === undefined) {
      const had = await Promise.all(this.#workers.map((worker) => this.#toWorker(worker, all)));
      if (had.every(Boolean)) return;
    }
    await this.#falling;
    this.#checkOpen();
    await this.#fallback?.apply(this.#ports.withSlots(all));
  }

  /** Each part is sent while the one before it is still being applied. Resolves with whether this worker has them all. */
  async #toWorker(worker: PoolWorker, changes: readonly EngineChange[]): Promise<boolean> {
    let last: ReturnType<PoolWorker['run']> | undefined;
    for (const part of inParts(changes)) {
      const applied = worker.run({ kind: 'apply', ...this.#ports.batch(worker, part) });
      // The one before may fail first.
      applied.catch(() => undefined);
      await last;
      last = applied;
    }
    if ((await last) !== undefined) return true;
    await worker.replaced.promise;
    return false;
  }

  #each(command: Command): Promise<Awaited<ReturnType<PoolWorker['run']>>[]> {
    return Promise.all(this.#workers.map((worker) => worker.run(command)));
  }

  #opened(name: string): void {
    if (this.#due.add(name).size > 1) return;
    const send = async () => {
      if (this.#due.size > 0) await this.#toAll([]);
    };
    this.#queue.run(send).catch(() => undefined);
  }

  #take(report: Report, worker: PoolWorker): void {
    if (report.kind === 'counts')
      this.#ports.counts(worker, report.name, report.slot, report.memory);
    if (report.kind !== 'turn') return;
    for (const [channel, message] of report.events)
      CHANNELS[channel]?.publish(decodeMessage(message));
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
