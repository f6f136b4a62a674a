import { setImmediate } from 'node:timers/promises';
import { KpngError } from '../errors.ts';
import { AffinityBudget, type AffinityLimit } from '../roundrobin/affinity.ts';
import { RoundRobinBalancer } from '../roundrobin/balancer.ts';
import { endpointText } from '../roundrobin/endpoint.ts';
import type { Clock } from '../util/clock.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import { ProcessDescriptors } from './core/descriptors.ts';
import { LimitSignal } from './core/limit-signal.ts';
import { addressKeys, AddressIndex } from './core/addresses.ts';
import { endpointSnapshot } from './core/endpoint-index.ts';
import { sourceFilter, type OwnedListener } from './core/listener.ts';
import { ListenerTable } from './core/listener-table.ts';
import { LoopGuard } from './core/loop-guard.ts';
import type { EngineContext, ServicePort } from './core/service-port.ts';
import { ServicePortTable } from './core/service-port-table.ts';
import {
  sharedChange,
  SharedServicePorts,
  usesSharedSockets,
  type SharedChange,
} from './core/shared-service-ports.ts';
import { newCounters, type Activity, type NewCounters } from './counters.ts';
import type { Engine, NewProcess, ServicePortSnapshot } from './engine.ts';
import {
  inspectAll,
  type EndpointSnapshot,
  type FailingEndpoints,
  type InspectQuery,
  type Inspection,
} from './inspect.ts';
import type { EngineLimits, LimitChange, LimitName } from './limits.ts';
import type { EndpointSpec, EngineChange, Protocol, ServicePortSpec, Traffic } from './spec.ts';
import { TcpAcceptor } from './tcp/acceptor.ts';
import type { AcceptOwner, TcpTransport } from './tcp/transport.ts';
import { UdpAcceptor } from './udp/acceptor.ts';
import type { UdpTransport } from './udp/transport.ts';

/** Changes applied in one turn of the event loop: some milliseconds of work. */
const BATCH_SIZE = 256;

export interface CoreOptions {
  readonly limits: EngineLimits;
  readonly clock: Clock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random: () => number;
  readonly descriptorLimit: number;
  /** Where counters live. Default: plain objects. */
  readonly counters?: NewCounters | undefined;
}

/**
 * An engine in the calling thread, on the sockets of two transports. Service ports of shared sockets are in its
 * snapshots only from their first client on.
 */
export class AcceptorEngine implements Engine {
  readonly kind: Engine['kind'];
  readonly descriptors: ProcessDescriptors;
  /** The object that acceptors read: `setLimits` changes it. */
  readonly #limits: EngineLimits;
  readonly #clock: Clock;
  readonly #tcp: TcpAcceptor;
  readonly #udp: UdpAcceptor;
  readonly #newCounters: NewCounters;
  readonly #newBalancer: () => RoundRobinBalancer;
  readonly #servicePorts = new ServicePortTable<ServicePort>((owner) => ({
    listeners: this.#table.statusOf(owner),
    endpoints: owner.balancer.size,
  }));
  readonly #addresses = new AddressIndex();
  readonly #shared = new SharedServicePorts<AcceptOwner>(this.#addresses, (change) => {
    this.#openShared(change);
    this.#loops.changed();
  });
  readonly #loops: LoopGuard;
  readonly #table: ListenerTable<ServicePort, OwnedListener>;
  readonly #queue = new SerialQueue();
  #closed: Promise<void> | undefined;
  #destroyed: Promise<void> | undefined;

  constructor(
    kind: Engine['kind'],
    options: CoreOptions,
    transports: (context: EngineContext) => { tcp: TcpTransport; udp: UdpTransport },
  ) {
    const { clock, random, descriptorLimit: limit } = options;
    const limits = { ...options.limits };
    const descriptors = new ProcessDescriptors({ limit, reserve: limits.reservedDescriptors });
    const context = { limits, clock, descriptors };
    const { tcp, udp } = transports(context);
    this.kind = kind;
    this.descriptors = descriptors;
    this.#limits = limits;
    this.#clock = clock;
    this.#loops = new LoopGuard(
      clock,
      this.#addresses,
      (name) =>
        this.#servicePorts.get(name)?.balancer.endpoints() ??
        this.#shared.get(name)?.endpoints ??
        [],
    );
    this.#tcp = new TcpAcceptor(context, tcp, this.#loops, this.#shared);
    this.#udp = new UdpAcceptor(udp, context);
    this.#table = new ListenerTable({
      ...context,
      kind,
      random,
      queue: this.#queue,
      loops: this.#loops,
      newListener: (spec, owner) => this.#acceptorOf(owner).newListener(spec, owner),
    });
    this.#newCounters = options.counters ?? ((_name, _slot, previous) => previous ?? newCounters());
    this.#newBalancer = balancerFactory(limits, clock, random);
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
      await this.#change(changes);
      this.#servicePorts.forget();
      this.#loops.changed();
      await this.#table.settle();
    });
  }

  async setLimits(limits: LimitChange): Promise<void> {
    Object.assign(this.#limits, limits);
    this.#tcp.limitsChanged();
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
    const now = this.#clock.now();
    const tcp = inspectAll(this.#tcp.all(), query, now);
    const left = query.maxConnections - tcp.connections.length;
    const udp = inspectAll(this.#udp.index, { ...query, maxConnections: left }, now);
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
   * Records the desired state. A large batch takes several turns of the event loop. With
   * removals it takes one: a new client must not reach a removed service port whose address another one takes over.
   */
  async #change(changes: readonly (EngineChange | SharedChange)[]): Promise<void> {
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
        const { name, endpoints } = change;
        if (this.#shared.setEndpoints(name, endpoints)) continue;
        const owner = this.#servicePorts.get(name);
        if (owner !== undefined) this.#setEndpoints(owner, endpoints);
      }
    }
  }

  #set(spec: ServicePortSpec, slot: number | undefined): void {
    if (usesSharedSockets(spec)) return this.#setShared(sharedChange(spec, slot));
    const before = this.#servicePorts.get(spec.name);
    if (before !== undefined && before.protocol !== spec.protocol) this.#remove(spec.name);
    this.#open(spec, slot);
  }

  #setShared(change: SharedChange): void {
    const before = this.#servicePorts.get(change.name)?.protocol;
    if (before === 'TCP') return this.#openShared(change);
    if (before !== undefined) this.#remove(change.name);
    this.#shared.set(change);
  }

  #openShared({ spec, slot }: SharedChange): void {
    this.#open(JSON.parse(spec) as ServicePortSpec, slot);
  }

  #open(spec: ServicePortSpec, slot: number | undefined): void {
    const owner = this.#servicePorts.get(spec.name) ?? this.#add(spec, slot);
    const isShared = usesSharedSockets(spec);
    this.#table.set(owner, isShared ? [] : spec.listen);
    this.#addresses.set(owner.name, spec.protocol === 'TCP' ? addressKeys(spec) : []);
    this.#tcp.listenShared(isShared ? spec.listen : [], owner);
    const isTransparent = spec.listen.some(({ transparent }) => transparent !== undefined);
    owner.udpIdleTimeoutMs = spec.udpIdleTimeoutMs;
    owner.keepsClients = isTransparent ? spec.keepsClients : undefined;
    owner.proxyProtocol = spec.proxyProtocol;
    owner.announcesClients = sourceFilter(spec.name, spec.proxyProtocolFrom);
    owner.balancer.setAffinity(spec.affinity);
    this.#setEndpoints(owner, spec.endpoints);
  }

  #add({ name, protocol }: ServicePortSpec, slot: number | undefined): ServicePort {
    const previous = this.#servicePorts.continued(name, protocol)?.counters;
    const counters = this.#newCounters(name, slot, previous);
    return this.#servicePorts.set({ name, protocol, counters, balancer: this.#newBalancer() });
  }

  #remove(name: string): void {
    this.#shared.route(name, []);
    this.#addresses.set(name, []);
    const owner = this.#servicePorts.remove(name);
    if (owner !== undefined) this.#release(owner);
  }

  /** `continues`: its connections and sessions do, until they end by themselves. */
  #release(owner: ServicePort, continues = false): void {
    owner.balancer.setAffinity({ kind: 'none' });
    this.#table.set(owner, []);
    this.#addresses.set(owner.name, []);
    this.#acceptorOf(owner).servicePortGone(owner, continues);
  }

  #setEndpoints(owner: ServicePort, endpoints: readonly EndpointSpec[]): void {
    owner.drained = new Set(endpoints.flatMap(({ drained = NOT_DRAINED }) => drained));
    const acceptor = this.#acceptorOf(owner);
    for (const endpoint of owner.balancer.update(endpoints)) acceptor.endpointGone(endpoint);
    if (owner.protocol === 'TCP') this.#tcp.endpointsChanged(owner);
  }

  #endpointsOf(servicePort: string): EndpointSnapshot[] {
    const owner = this.#servicePorts.get(servicePort);
    const acceptor = owner && this.#acceptorOf(owner);
    const now = this.#clock.now();
    if (owner !== undefined && acceptor !== undefined)
      return owner.balancer
        .endpoints()
        .map((each) => endpointSnapshot(servicePort, each, now, acceptor.index.useOf(each)));
    const texts = new Set(this.#shared.get(servicePort)?.endpoints.map(endpointText));
    return Array.from(texts, (text) => endpointSnapshot(servicePort, { text }, now));
  }

  #failing(): FailingEndpoints {
    const found = new Map<string, Set<string>>();
    for (const { name, balancer } of this.#servicePorts.all()) {
      if (balancer.failing === 0) continue;
      const failing = balancer
        .endpoints()
        .filter(({ recorded }) => recorded?.failingSince !== undefined);
      found.set(name, new Set(failing.map(({ text }) => text)));
    }
    return found;
  }

  async #close(newProcess: NewProcess | undefined): Promise<void> {
    await this.#queue.run(async () => {
      if (newProcess !== undefined) this.#table.leave(newProcess.served);
      this.#shared.clear();
      for (const owner of this.#servicePorts.clear())
        this.#release(owner, owner.protocol === 'TCP' || newProcess !== undefined);
      await this.#table.close();
    });
    await Promise.all([this.#tcp.gate.empty(), this.#udp.gate.empty()]);
  }

  async #destroy(): Promise<void> {
    this.#table.end();
    // What is queued may still be opening or closing listeners, whose clients have to end, too.
    await Promise.all([this.#endAll(), this.#queue.run(() => this.#endAll())]);
  }

  async #endAll(): Promise<void> {
    this.#shared.clear();
    this.#servicePorts.clear();
    await this.#table.close();
    this.#udp.destroy();
    await this.#tcp.destroy();
  }

  #acceptorOf({ protocol }: { readonly protocol: Protocol }): TcpAcceptor | UdpAcceptor {
    return protocol === 'TCP' ? this.#tcp : this.#udp;
  }
}

const NOT_DRAINED: readonly Traffic[] = [];

function balancerFactory(
  { maxAffinityClients, maxAffinityClientsTotal }: EngineLimits,
  clock: Clock,
  random: () => number,
): () => RoundRobinBalancer {
  const limitOf = (name: LimitName, maxClients: number): AffinityLimit => ({
    maxClients,
    signal: new LimitSignal(name, () => maxClients),
  });
  const affinityBudget = new AffinityBudget(
    limitOf('max-affinity-clients-total', maxAffinityClientsTotal),
  );
  return () => {
    const affinityLimit = limitOf('max-affinity-clients', maxAffinityClients);
    return new RoundRobinBalancer({ clock, random, affinityLimit, affinityBudget });
  };
}
