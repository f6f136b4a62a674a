import { setImmediate } from 'node:timers/promises';
import { KpngError } from '../../errors.ts';
import type { Balancer, BalancerEndpoint } from '../../roundrobin/types.ts';
import type { Clock } from '../../util/clock.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import type { Engine, NewProcess, ServicePortSnapshot } from '../engine.ts';
import type { Activity } from '../counters.ts';
import {
  inspectAll,
  type EndpointSnapshot,
  type FailingEndpoints,
  type InspectQuery,
  type Inspection,
} from '../inspect.ts';
import type { EngineLimits, LimitChange } from '../limits.ts';
import { endpointSnapshot } from './endpoint-index.ts';
import { ListenerTable } from './listener-table.ts';
import type { LoopGuard } from './loop-guard.ts';
import type { Acceptor, ServicePort } from './service-port.ts';
import {
  sharedChange,
  type SharedChange,
  type SharedServicePorts,
  usesSharedSockets,
} from './shared-service-ports.ts';
import {
  ServicePortTable,
  updateEndpoints,
  type CounterStore,
  type Entry,
} from './service-port-table.ts';
import type {
  AffinitySpec,
  EngineChange,
  PortalAddress,
  Protocol,
  ServicePortSpec,
} from '../spec.ts';
import type { ProcessDescriptors } from './descriptors.ts';
import { endpointsAfter } from './endpoint-patch.ts';

/** Changes applied in one turn of the event loop: some milliseconds of work. */
const BATCH_SIZE = 256;

/** The parts of an engine. */
interface AcceptorEngineParts {
  readonly kind: Engine['kind'];
  readonly acceptors: Readonly<Record<Protocol, Acceptor>>;
  readonly descriptors: ProcessDescriptors;
  /** Notified of the addresses of TCP listeners; queried by the TCP acceptor. */
  readonly loops: LoopGuard;
  readonly shared: SharedServicePorts<object>;
  readonly newBalancer: (affinity: AffinitySpec) => Balancer;
  /** The object that acceptors read: `setLimits` changes it. */
  readonly limits: EngineLimits;
  readonly clock: Clock;
  readonly random: () => number;
  /** Where counters live; by default in plain objects. */
  readonly counters?: CounterStore;
}

/**
 * An engine in one thread: keeps service ports and listeners; the acceptors carry the traffic. Service ports of shared
 * sockets are not in its snapshots before their first client: the pool knows them.
 */
export class AcceptorEngine implements Engine {
  readonly kind: Engine['kind'];
  readonly #acceptors: Readonly<Record<Protocol, Acceptor>>;
  readonly #limits: EngineLimits;
  readonly #newBalancer: (affinity: AffinitySpec) => Balancer;
  readonly #servicePorts: ServicePortTable;
  readonly #shared: SharedServicePorts<object>;
  readonly #table: ListenerTable;
  readonly #loops: LoopGuard;
  readonly #clock: Clock;
  readonly #queue = new SerialQueue();
  #closed: Promise<void> | undefined;
  #destroyed: Promise<void> | undefined;

  constructor(parts: AcceptorEngineParts) {
    this.kind = parts.kind;
    this.#acceptors = parts.acceptors;
    this.#limits = parts.limits;
    this.#newBalancer = parts.newBalancer;
    this.#clock = parts.clock;
    this.#loops = parts.loops;
    this.#shared = parts.shared;
    this.#shared.onFirstClient(({ spec, slot }) => {
      this.#open(JSON.parse(spec) as ServicePortSpec, slot);
      this.#loops.changed();
    });
    this.#servicePorts = new ServicePortTable(parts.newBalancer, parts.limits, parts.counters);
    this.#table = new ListenerTable({
      ...parts,
      enqueue: (job) => {
        // A listener that fails again is an outcome, so such a job does not reject.
        void this.#queue.run(job);
      },
    });
  }

  /** Whether a batch is being applied, or listeners are being retried. */
  get isBusy(): boolean {
    return this.#queue.size > 0;
  }

  apply(changes: readonly (EngineChange | SharedChange)[]): Promise<void> {
    return this.#queue.run(async () => {
      if (this.#closed !== undefined || this.#destroyed !== undefined) {
        throw new KpngError('KPNG_SINK_FAILED', 'the engine is closed');
      }
      const unknown = await this.#change(changes);
      this.#loops.changed();
      await this.#table.settle();
      if (unknown.length === 0) return;
      throw new KpngError(
        'KPNG_SERVICE_INVALID',
        `endpoints for service ports that are not set: ${unknown.join(', ')}`,
      );
    });
  }

  async setLimits(limits: LimitChange): Promise<void> {
    Object.assign(this.#limits, limits);
    this.#servicePorts.limitsChanged();
    for (const acceptor of this.#both()) acceptor.limitsChanged?.();
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    return this.#servicePorts.snapshot(names);
  }

  names(): string[] {
    return this.#servicePorts.names();
  }

  activity(): Activity {
    return this.#servicePorts.activity();
  }

  async inspect(query: InspectQuery): Promise<Inspection> {
    return this.inspectNow(query);
  }

  /** The same, for a thread that cannot run promise callbacks. */
  inspectNow(query: InspectQuery): Inspection {
    const { TCP, UDP } = this.#acceptors;
    const tcp = inspectAll(TCP.connections?.() ?? [], query);
    const left = query.maxConnections - tcp.connections.length;
    const udp = inspectAll(UDP.connections?.() ?? [], { ...query, maxConnections: left });
    return {
      connections: [...tcp.connections, ...udp.connections],
      matched: tcp.matched + udp.matched,
      complete: tcp.complete && udp.complete,
      endpoints: (query.servicePorts ?? []).flatMap((name) => this.#endpointsOf(name)),
      ...(query.failing === true && { failing: this.#failing() }),
    };
  }

  close(newProcess?: NewProcess): Promise<void> {
    this.#closed ??= this.#close(newProcess);
    return this.#closed;
  }

  destroy(): Promise<void> {
    this.#destroyed ??= this.#destroy();
    return this.#destroyed;
  }

  /**
   * Records the desired state; returns the names of service ports that should exist and do not.
   *
   * A large batch, such as the first one, takes several turns of the event loop. With removals it takes one: a new
   * client must not reach a removed service port whose address another one takes over.
   */
  async #change(changes: readonly (EngineChange | SharedChange)[]): Promise<string[]> {
    const unknown: string[] = [];
    let batchSize = BATCH_SIZE;
    for (const change of changes) {
      if (change.kind !== 'remove') continue;
      batchSize = Infinity;
      this.#remove(change.name);
    }
    for (const [index, change] of changes.entries()) {
      if (index > 0 && index % batchSize === 0) await setImmediate();
      if (change.kind === 'set') {
        this.#set(change.spec, change.slot);
      } else if (change.kind === 'shared') {
        this.#setShared(change);
      } else if (change.kind !== 'remove') {
        const { name } = change;
        if (this.#shared.setEndpoints(name, (before) => endpointsAfter(before, change))) continue;
        const entry = this.#servicePorts.get(name);
        if (entry === undefined) unknown.push(name);
        else this.#endpointsChanged(entry.owner, updateEndpoints(entry.owner, change));
      }
    }
    return unknown;
  }

  #set(spec: ServicePortSpec, slot: number | undefined): void {
    if (usesSharedSockets(spec)) {
      this.#setShared(sharedChange(spec, slot));
      return;
    }
    const before = this.#servicePorts.get(spec.name);
    if (before !== undefined && before.owner.protocol !== spec.protocol) this.#remove(spec.name);
    this.#shared.remove(spec.name);
    this.#open(spec, slot);
  }

  #setShared(change: SharedChange): void {
    const before = this.#servicePorts.get(change.name)?.owner.protocol;
    if (before === 'TCP') {
      this.#open(JSON.parse(change.spec) as ServicePortSpec, change.slot);
    } else {
      if (before !== undefined) this.#remove(change.name);
      this.#shared.set(change);
    }
  }

  #open(spec: ServicePortSpec, slot: number | undefined): void {
    const { entry, gone } = this.#servicePorts.set(spec, slot);
    const { owner } = entry;
    const isShared = usesSharedSockets(spec);
    entry.claims = this.#table.set(owner, entry.claims, isShared ? [] : spec.listen);
    this.#acceptors[owner.protocol].listenShared?.(isShared ? spec.listen : [], owner);
    if (spec.protocol === 'TCP') this.#loops.setPortals(owner, portalsOf(spec));
    this.#endpointsChanged(owner, gone);
  }

  #remove(name: string): void {
    this.#shared.remove(name);
    const entry = this.#servicePorts.remove(name);
    if (entry !== undefined) this.#release(entry);
  }

  #release({ owner, claims }: Entry): void {
    this.#table.release(claims);
    this.#acceptors[owner.protocol].listenShared?.([], owner);
    this.#loops.setPortals(owner, []);
    this.#acceptors[owner.protocol].servicePortGone(owner);
  }

  #endpointsChanged(owner: ServicePort, gone: readonly BalancerEndpoint[]): void {
    const acceptor = this.#acceptors[owner.protocol];
    for (const endpoint of gone) acceptor.endpointGone(endpoint, owner);
    acceptor.endpointsChanged?.(owner);
  }

  #endpointsOf(servicePort: string): EndpointSnapshot[] {
    const owner = this.#servicePorts.get(servicePort)?.owner;
    const acceptor = owner && this.#acceptors[owner.protocol];
    const balancer = owner?.balancer ?? this.#balancerOf(this.#shared.get(servicePort));
    const now = this.#clock.now();
    return (balancer?.endpoints() ?? []).map((each) =>
      endpointSnapshot(servicePort, each, acceptor?.useOf?.(each), now),
    );
  }

  /** Of a service port that has had no client. */
  #balancerOf(spec: ServicePortSpec | undefined): Balancer | undefined {
    const balancer = spec && this.#newBalancer(spec.affinity);
    balancer?.update(spec?.endpoints ?? []);
    return balancer;
  }

  #failing(): FailingEndpoints {
    const found = new Map<string, Set<string>>();
    for (const name of this.#servicePorts.names()) {
      const { balancer } = this.#servicePorts.get(name)?.owner ?? {};
      if (balancer === undefined || balancer.failing === 0) continue;
      const failing = balancer
        .endpoints()
        .filter(({ recorded }) => recorded?.failingSince !== undefined);
      found.set(name, new Set(failing.map(({ text }) => text)));
    }
    return found;
  }

  async #close(newProcess: NewProcess | undefined): Promise<void> {
    await this.#queue.run(async () => {
      for (const acceptor of this.#both()) acceptor.leave?.(newProcess);
      this.#shared.clear();
      for (const entry of this.#servicePorts.clear()) this.#release(entry);
      await this.#table.close();
    });
    await Promise.all(this.#each(async (acceptor) => acceptor.drained()));
  }

  async #destroy(): Promise<void> {
    this.#table.end();
    this.#shared.clear();
    await Promise.all(this.#each(async (acceptor) => acceptor.destroy()));
    await this.#queue.run(async () => {
      this.#servicePorts.clear();
      await this.#table.close();
    });
    // Opened by a batch while it was being ended.
    await Promise.all(this.#each(async (acceptor) => acceptor.destroy()));
  }

  #each(work: (acceptor: Acceptor) => Promise<void>): Promise<void>[] {
    return this.#both().map(async (acceptor) => work(acceptor));
  }

  #both(): Acceptor[] {
    return [this.#acceptors.TCP, this.#acceptors.UDP];
  }
}

/** Addresses of its clients besides those where it listens. */
function portalsOf({ portals, listen }: ServicePortSpec): readonly PortalAddress[] {
  return portals ?? listen.flatMap(({ transparent = [] }) => transparent);
}
