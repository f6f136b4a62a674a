import { setImmediate, setTimeout as delay } from 'node:timers/promises';
import { KpngError, messageOf } from '../../errors.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import { watchSubscribers } from '../../util/channel.ts';
import { processDescriptorLimit } from '../descriptors.ts';
import type { Engine, ServicePortSnapshot } from '../engine.ts';
import { dataPlaneFault, type DataPlaneFault } from '../events.ts';
import { NOTHING, type InspectQuery, type Inspection } from '../inspect.ts';
import { DEFAULT_LIMITS, type EngineLimits } from '../limits.ts';
import type { EngineChange, ServicePortSpec } from '../spec.ts';
import { Mirror } from './mirror.ts';
import { PlaneWorker, WorkerLost } from './plane-worker.ts';
import { Deaths, Succession, type MakeSuccessor } from './successor.ts';
import { CHANNELS, decodeError, decodeMessage } from './worker/event-codec.ts';
import type { Report } from './worker/protocol.ts';

/** A worker that dies younger than this is not replaced at once. Milliseconds. */
const YOUNG_MS = 10_000;
/** A worker that is told to cut everything has this long to do it. Milliseconds. */
const LAST_WORDS_MS = 5000;

export interface LinuxEngineOptions {
  /** Instead of the defaults, each by itself. */
  readonly limits?: Partial<EngineLimits>;
  /**
   * Makes the engine that takes over when workers keep dying. Default: there is none, and another
   * worker is tried again and again.
   */
  readonly successor?: MakeSuccessor;
  /** The module that worker threads run, for tests. */
  readonly module?: URL;
  /** How long to wait before another worker is tried. */
  readonly backoff?: BackoffPolicy;
  /** How many engines share the descriptors of the process. Default: 1. */
  readonly engines?: number;
}

/**
 * The engine on system calls, for Linux: accepts, dials and relays in a worker thread.
 *
 * Rejects with an UnfitError that names the start-up probe that has failed; nothing is left of the
 * engine then.
 */
export async function createLinuxEngine(options: LinuxEngineOptions = {}): Promise<LinuxEngine> {
  const engine = new LinuxEngine(options);
  await engine.start();
  return engine;
}

/**
 * What is left in the main thread: the desired state, to start another worker with when one has died,
 * and what the worker has told last.
 */
export class LinuxEngine implements Engine {
  readonly #limits: EngineLimits;
  readonly #module: URL | undefined;
  readonly #makeSuccessor: MakeSuccessor | undefined;
  readonly #deaths = new Deaths();
  readonly #descriptorLimit = processDescriptorLimit();
  readonly #engines: number;
  readonly #desired = new Map<string, ServicePortSpec>();
  readonly #mirror = new Mirror();
  readonly #backoff: Backoff;
  readonly #unwatch: () => void;
  readonly #ending = new AbortController();
  #worker: PlaneWorker;
  /** There once workers have died too often; then there is no worker any more. */
  #succession: Succession | undefined;
  /** There while a worker that has died is being replaced. */
  #restarting: Promise<void> | undefined;
  #closed: Promise<void> | undefined;
  #destroyed: Promise<void> | undefined;

  /** `start` has to follow. */
  constructor(options: LinuxEngineOptions) {
    const { limits, module, successor, backoff = DEFAULT_BACKOFF, engines = 1 } = options;
    this.#engines = engines;
    this.#limits = { ...DEFAULT_LIMITS, ...limits };
    this.#module = module;
    this.#makeSuccessor = successor;
    this.#backoff = new Backoff(backoff, Math.random);
    this.#worker = this.#newWorker();
    this.#unwatch = watchSubscribers(CHANNELS, () => this.#subscribe());
  }

  /** Changes when another engine has to take over. */
  get kind(): Engine['kind'] {
    return this.#succession?.engine.kind ?? 'linux';
  }

  /** Whether several of these get all clients of one address at the places that they share. */
  get steers(): boolean {
    return this.#worker.steers;
  }

  /** Resolves when the worker has passed its probes. */
  async start(): Promise<void> {
    try {
      await this.#worker.ready;
    } catch (error) {
      this.#unwatch();
      await this.#worker.terminate();
      this.#worker.closeOrphans();
      throw error;
    }
    this.#subscribe();
    void this.#watch(this.#worker);
  }

  async apply(changes: readonly EngineChange[]): Promise<void> {
    if (this.#closed !== undefined || this.#destroyed !== undefined) {
      throw new KpngError('KPNG_SINK_FAILED', 'the engine is closed and takes no changes');
    }
    this.#note(changes);
    for (let left = changes; ; left = this.#stillWanted(changes)) {
      await this.#restarting;
      try {
        await this.#carrier.apply(left);
        return;
      } catch (error) {
        if (!(error instanceof WorkerLost) || this.#ending.signal.aborted) throw error;
      }
      // The thread is over; whoever watches it has begun to replace it by the next turn.
      await setImmediate();
    }
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    return this.#succession?.snapshot(names) ?? this.#mirror.snapshot(names);
  }

  names(): string[] {
    const successor = this.#succession?.engine;
    if (successor === undefined) return this.#mirror.names();
    return successor.names?.() ?? successor.snapshot().map(({ name }) => name);
  }

  async inspect(query: InspectQuery): Promise<Inspection> {
    try {
      const { engine = this.#worker } = this.#succession ?? {};
      return (await engine.inspect?.(query)) ?? NOTHING;
    } catch (error) {
      // All connections have ended with it.
      if (error instanceof WorkerLost) return NOTHING;
      throw error;
    }
  }

  close(): Promise<void> {
    this.#closed ??= this.#end('close');
    return this.#closed;
  }

  destroy(): Promise<void> {
    this.#destroyed ??= this.#end('destroy');
    return this.#destroyed;
  }

  /**
   * Blocks until the worker has done and told everything that came before; false when it takes longer
   * than a second. For tests.
   */
  sync(): boolean {
    return this.#worker.sync();
  }

  /** Ends the worker as a mistake of its own would, so that another one takes its place. For tests. */
  async loseWorker(): Promise<void> {
    await this.#worker.terminate();
  }

  /** Who carries out what is asked. */
  get #carrier(): Pick<Engine, 'apply' | 'close' | 'destroy'> {
    return this.#succession?.engine ?? this.#worker;
  }

  #note(changes: readonly EngineChange[]): void {
    for (const change of changes) if (change.kind === 'remove') this.#desired.delete(change.name);
    for (const change of changes) {
      if (change.kind === 'set') {
        this.#desired.set(change.spec.name, change.spec);
      } else if (change.kind === 'endpoints') {
        const spec = this.#desired.get(change.name);
        if (spec === undefined) continue;
        this.#desired.set(change.name, { ...spec, endpoints: change.endpoints });
      }
    }
  }

  /** After a restart the new worker knows what had been noted by then; the rest does no harm to repeat. */
  #stillWanted(changes: readonly EngineChange[]): readonly EngineChange[] {
    return changes.filter(({ kind, ...rest }) => {
      return kind !== 'endpoints' || ('name' in rest && this.#desired.has(rest.name));
    });
  }

  async #end(how: 'close' | 'destroy'): Promise<void> {
    this.#ending.abort();
    await this.#restarting;
    const worker = this.#worker;
    const timer =
      how === 'close' ? undefined : setTimeout(() => void worker.terminate(), LAST_WORDS_MS);
    try {
      await this.#carrier[how]();
    } catch (error) {
      // A worker that has died has ended everything, too.
      if (!(error instanceof WorkerLost)) throw error;
    }
    await worker.over;
    clearTimeout(timer);
    this.#unwatch();
    worker.closeOrphans();
    this.#mirror.clear();
  }

  #newWorker(former?: PlaneWorker): PlaneWorker {
    return new PlaneWorker({
      limits: this.#limits,
      descriptorLimit: this.#descriptorLimit,
      descriptorShare: shareOf(
        this.#descriptorLimit,
        this.#limits.reservedDescriptors,
        this.#engines,
      ),
      module: this.#module,
      formerPorts: this.#mirror.chosenPorts(),
      former,
      onReport: (report) => this.#take(report),
    });
  }

  #take(report: Report): void {
    this.#mirror.take(report);
    for (const [channel, message] of report.events ?? []) {
      CHANNELS[channel]?.publish(decodeMessage(message));
    }
    for (const fault of report.faults ?? []) {
      publishFault('mistake', decodeError(fault));
    }
    if (report.eventsDropped !== undefined) {
      publishFault('events-dropped', new Error(`${report.eventsDropped} events were left out`));
    }
  }

  #subscribe(): void {
    let bits = 0;
    for (const [index, channel] of CHANNELS.entries()) {
      if (channel.hasSubscribers) bits |= 1 << index;
    }
    this.#worker.subscriptions = bits;
  }

  /** Replaces the worker when it dies. */
  async #watch(worker: PlaneWorker): Promise<void> {
    const since = performance.now();
    const error = await worker.over;
    if (this.#ending.signal.aborted) return;
    this.#died(error ?? new Error('the thread has ended'));
    this.#mirror.lose();
    const isYoung = performance.now() - since < YOUNG_MS;
    if (!isYoung) this.#backoff.reset();
    this.#restarting = this.#restart(worker, isYoung);
    await this.#restarting;
    this.#restarting = undefined;
  }

  /** Resolves when another worker, or another engine, does the same, or when the engine is to end. */
  async #restart(former: PlaneWorker, waitFirst: boolean): Promise<void> {
    const { signal } = this.#ending;
    for (let wait = waitFirst; ; wait = true) {
      if (this.#makeSuccessor !== undefined && this.#deaths.areTooMany) {
        former.closeOrphans();
        await this.#giveUp(this.#makeSuccessor);
        return;
      }
      if (wait) await delay(this.#backoff.next(), undefined, { signal }).catch(() => undefined);
      if (signal.aborted) break;
      const worker = this.#newWorker(former);
      try {
        await worker.ready;
        this.#worker = worker;
        this.#subscribe();
        await worker.apply(this.#everything());
        void this.#watch(worker);
        return;
      } catch (error) {
        this.#died(error instanceof Error ? error : new Error(messageOf(error)));
        await worker.terminate();
        worker.closeOrphans();
      }
    }
    former.closeOrphans();
  }

  /** Another engine does the same, on the same ports. */
  async #giveUp(makeSuccessor: MakeSuccessor): Promise<void> {
    const ports = this.#mirror.chosenPorts();
    const engine = await makeSuccessor((key) => ports.get(key));
    const reason = `the ${engine.kind} engine carries on`;
    publishFault('given-up', new Error(reason));
    const counts = this.#mirror.formerCounts();
    await engine.apply(this.#everything());
    this.#succession = new Succession(engine, counts);
  }

  #everything(): EngineChange[] {
    return [...this.#desired.values()].map((spec) => ({ kind: 'set', spec }));
  }

  #died(error: Error): void {
    this.#deaths.add(performance.now());
    publishFault('worker-lost', error);
  }
}

/** How many descriptors one of several engines may count with; the reserve is that of all of them. */
function shareOf(limit: number, reserve: number, engines: number): number {
  return reserve + Math.floor(Math.max(0, limit - reserve) / engines);
}

function publishFault(what: DataPlaneFault['what'], error: Error): void {
  if (dataPlaneFault.hasSubscribers) dataPlaneFault.publish({ what, error });
}
