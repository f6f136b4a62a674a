import type { Activity } from '../core/activity.ts';
import { setImmediate, setTimeout as delay } from 'node:timers/promises';
import { KpngError, messageOf } from '../../errors.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import { watchSubscribers } from '../../util/channel.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import { processDescriptorLimit } from '../core/descriptors.ts';
import type { Engine, Heir, ServicePortSnapshot } from '../engine.ts';
import { dataPlaneFault, type DataPlaneFault } from '../events.ts';
import { NOTHING, type InspectQuery, type Inspection } from '../inspect.ts';
import { DEFAULT_LIMITS, type EngineLimits, type LimitChange } from '../limits.ts';
import type { EngineChange, ServicePortSpec } from '../spec.ts';
import { Mirror } from './mirror.ts';
import { PlaneWorker, WorkerLost } from './plane-worker.ts';
import { Deaths, Succession, type MakeSuccessor } from './successor.ts';
import { CHANNELS, decodeError, decodeMessage } from './event-codec.ts';
import type { Report } from './protocol.ts';

/** A worker that dies younger than this is not replaced at once. Milliseconds. */
const YOUNG_MS = 10_000;
/** A worker that is told to cut everything has this long to do it. Milliseconds. */
const LAST_WORDS_MS = 5000;

/** What the threads of an engine do. */
export interface ThreadKind {
  readonly kind: Engine['kind'];
  /** The module that they run. */
  readonly module: URL;
}

export interface ThreadEngineOptions extends ThreadKind {
  /** Instead of the defaults, each by itself. */
  readonly limits?: Partial<EngineLimits>;
  /**
   * Makes the engine that takes over when workers keep dying. Default: there is none, and another
   * worker is tried again and again.
   */
  readonly successor?: MakeSuccessor;
  /** What threads run when those of this kind keep dying: with the same sockets, which a successor has not. */
  readonly next?: ThreadKind;
  /** Counts the deaths together with those of other engines. Default: its own only. */
  readonly deaths?: Deaths;
  /** How long to wait before another worker is tried. */
  readonly backoff?: BackoffPolicy;
  /** How many engines share the descriptors of the process. Default: 1. */
  readonly engines?: number;
  /** Instead of all of the host, for threads of the kind `node`. See `NodeEngineOptions`. */
  readonly hostAddresses?: () => readonly HostAddress[];
}

/**
 * An engine whose data path is a worker thread. What is left in the main thread: the desired state, to start
 * another worker with when one has died, and what the worker has told last.
 */
export class ThreadEngine implements Engine {
  readonly #limits: EngineLimits;
  readonly #makeSuccessor: MakeSuccessor | undefined;
  readonly #next: ThreadKind | undefined;
  readonly #deaths: Deaths;
  readonly #hostAddresses: (() => readonly HostAddress[]) | undefined;
  readonly #descriptorLimit = processDescriptorLimit();
  readonly #engines: number;
  readonly #desired = new Map<string, ServicePortSpec>();
  readonly #mirror = new Mirror();
  readonly #backoff: Backoff;
  readonly #unwatch: () => void;
  readonly #ending = new AbortController();
  #thread: ThreadKind;
  #worker: PlaneWorker;
  /** There once workers have died too often; then there is no worker any more. */
  #succession: Succession | undefined;
  /** There while a worker that has died is being replaced. */
  #restarting: Promise<void> | undefined;
  #closed: Promise<void> | undefined;
  #destroyed: Promise<void> | undefined;

  /** `start` has to follow. */
  constructor(options: ThreadEngineOptions) {
    const { limits, kind, module, backoff = DEFAULT_BACKOFF, engines = 1 } = options;
    this.#engines = engines;
    this.#limits = { ...DEFAULT_LIMITS, ...limits };
    this.#thread = { kind, module };
    this.#makeSuccessor = options.successor;
    this.#next = options.next;
    this.#deaths = options.deaths ?? new Deaths();
    this.#hostAddresses = options.hostAddresses;
    this.#backoff = new Backoff(backoff, Math.random);
    this.#worker = this.#newWorker();
    this.#unwatch = watchSubscribers(CHANNELS, () => this.#subscribe());
  }

  /** Changes when another engine has to take over. */
  get kind(): Engine['kind'] {
    return this.#succession?.engine.kind ?? this.#thread.kind;
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

  async setLimits(limits: LimitChange): Promise<void> {
    Object.assign(this.#limits, limits);
    try {
      await this.#carrier.setLimits?.(limits);
    } catch (error) {
      // The next worker is told before anything else.
      if (!(error instanceof WorkerLost)) throw error;
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

  activity(): Activity | undefined {
    const successor = this.#succession?.engine;
    return successor === undefined ? this.#mirror.activity() : successor.activity?.();
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

  close(heir?: Heir): Promise<void> {
    this.#closed ??= this.#end('close', heir);
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
  get #carrier(): Pick<Engine, 'apply' | 'setLimits' | 'close' | 'destroy'> {
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

  async #end(how: 'close' | 'destroy', heir?: Heir): Promise<void> {
    this.#ending.abort();
    await this.#restarting;
    const worker = this.#worker;
    const timer =
      how === 'close' ? undefined : setTimeout(() => void worker.terminate(), LAST_WORDS_MS);
    try {
      await this.#carrier[how](heir);
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
      module: this.#thread.module,
      compilesInPlace: this.#thread.kind === 'linux',
      formerPorts: this.#mirror.chosenPorts(),
      formerPlaces: this.#mirror.places(),
      former,
      hostAddresses: this.#thread.kind === 'node' ? this.#hostAddresses : undefined,
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
      if (this.#deaths.areTooMany && this.#makeSuccessor !== undefined) {
        former.closeOrphans();
        await this.#giveUp(this.#makeSuccessor);
        return;
      }
      if (this.#deaths.areTooMany && this.#next !== undefined && this.#thread !== this.#next) {
        this.#thread = this.#next;
        tellGivenUp(this.#thread.kind);
        wait = false;
      }
      if (wait) await delay(this.#backoff.next(), undefined, { signal }).catch(() => undefined);
      if (signal.aborted) break;
      const worker = this.#newWorker(former);
      try {
        await worker.ready;
        this.#worker = worker;
        this.#subscribe();
        // They may have changed since it was started.
        await worker.setLimits(this.#limits);
        await worker.apply(this.#everything());
        void this.#watch(worker);
        return;
      } catch (error) {
        this.#died(error instanceof Error ? error : new Error(messageOf(error)));
        await worker.terminate();
        await worker.over;
        this.#mirror.lose();
        worker.closeOrphans();
      }
    }
    former.closeOrphans();
  }

  /** Another engine does the same, on the same ports. */
  async #giveUp(makeSuccessor: MakeSuccessor): Promise<void> {
    const ports = this.#mirror.chosenPorts();
    const engine = await makeSuccessor((key) => ports.get(key));
    tellGivenUp(engine.kind);
    const counts = this.#mirror.formerCounts();
    await engine.apply(this.#everything());
    // They may have changed since it was made.
    await engine.setLimits?.(this.#limits);
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

function tellGivenUp(kind: Engine['kind']): void {
  publishFault('given-up', new Error(`the ${kind} engine carries on`));
}

function publishFault(what: DataPlaneFault['what'], error: Error): void {
  if (dataPlaneFault.hasSubscribers) dataPlaneFault.publish({ what, error });
}
