import type { RoundRobinBalancer } from '../../roundrobin/balancer.ts';
import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { countedIn, newCounters, type Activity, type ServicePortCounters } from '../counters.ts';
import type { ServicePortSnapshot } from '../engine.ts';
import type { EngineLimits } from '../limits.ts';
import { isUsable } from './endpoint-patch.ts';
import { claimStatus, type Claim } from './listener-slot.ts';
import type { ServicePort } from './service-port.ts';
import { sourceFilter } from './clients.ts';
import type {
  AffinitySpec,
  EndpointChanges,
  EndpointSpec,
  ServicePortSpec,
  Traffic,
} from '../spec.ts';

/** A service port and its listen addresses. */
export interface Entry {
  readonly owner: ServicePort;
  claims: readonly Claim[];
  /** Whether it has its own idle limit instead of the engine's. */
  hasOwnIdle: boolean;
}

/**
 * Returns where a service port counts from now on. `slot`: see `EngineChange`. `previous`: where relays count that it has
 * had before it was removed; it counts on there if that is the same slot.
 */
export type NewCounters = (
  slot: number | undefined,
  previous?: ServicePortCounters,
) => ServicePortCounters;

const PLAIN: NewCounters = (_, previous) =>
  previous !== undefined && previous.active > 0 ? previous : newCounters();

/** The service ports of an engine: those that are set, and those removed that still have relays. */
export class ServicePortTable {
  readonly #newBalancer: (affinity: AffinitySpec) => RoundRobinBalancer;
  readonly #limits: Pick<EngineLimits, 'udpIdleTimeoutMs'>;
  readonly #newCounters: NewCounters;
  readonly #entries = new Map<string, Entry>();
  readonly #draining = new Map<string, ServicePort>();

  constructor(
    newBalancer: (affinity: AffinitySpec) => RoundRobinBalancer,
    limits: Pick<EngineLimits, 'udpIdleTimeoutMs'>,
    counters: NewCounters = PLAIN,
  ) {
    this.#newBalancer = newBalancer;
    this.#limits = limits;
    this.#newCounters = counters;
  }

  get(name: string): Entry | undefined {
    return this.#entries.get(name);
  }

  /**
   * Creates a service port or changes it; returns it with its removed endpoints. Its protocol must not change: remove
   * it first.
   */
  set(spec: ServicePortSpec, slot?: number): { entry: Entry; gone: readonly BalancerEndpoint[] } {
    const { name, affinity, endpoints } = spec;
    const entry = this.#entries.get(name) ?? this.#add(spec, slot);
    entry.hasOwnIdle = spec.udpIdleTimeoutMs !== undefined;
    entry.owner.udpIdleTimeoutMs = spec.udpIdleTimeoutMs ?? this.#limits.udpIdleTimeoutMs;
    const isTransparent = spec.listen.some(({ transparent }) => transparent !== undefined);
    entry.owner.keepsClients = isTransparent ? spec.keepsClients : undefined;
    entry.owner.proxyProtocol = spec.proxyProtocol;
    entry.owner.announcesClients = sourceFilter(name, spec.proxyProtocolFrom);
    entry.owner.balancer.setAffinity(affinity);
    return { entry, gone: updateEndpoints(entry.owner, { endpoints }) };
  }

  /** Sessions take a new idle limit with their next datagram. */
  limitsChanged(): void {
    const { udpIdleTimeoutMs } = this.#limits;
    for (const { owner, hasOwnIdle } of this.#entries.values()) {
      if (!hasOwnIdle) owner.udpIdleTimeoutMs = udpIdleTimeoutMs;
    }
  }

  /** Removes a service port; while relays of it run, it stays in the snapshot. */
  remove(name: string): Entry | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    this.#entries.delete(name);
    entry.owner.balancer.setAffinity({ kind: 'none' });
    this.#forgetDrained();
    if (entry.owner.counters.active > 0) this.#draining.set(name, entry.owner);
    return entry;
  }

  /** Empties the table; returns its content. */
  clear(): readonly Entry[] {
    const entries = [...this.#entries.values()];
    for (const { owner } of entries) this.remove(owner.name);
    return entries;
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    this.#forgetDrained();
    const wanted = names === undefined ? this.names() : [...names];
    return wanted.flatMap((name) => this.#snapshotOf(name) ?? []);
  }

  names(): string[] {
    return [...new Set([...this.#entries.keys(), ...this.#draining.keys()])];
  }

  activity(): Activity {
    this.#forgetDrained();
    let [counted, active] = [0, 0];
    const add = ({ counters }: ServicePort): void => {
      counted += countedIn(counters);
      active += counters.active;
    };
    for (const { owner } of this.#entries.values()) add(owner);
    for (const owner of this.#draining.values()) add(owner);
    return { servicePorts: this.#entries.size + this.#draining.size, counted, active };
  }

  #snapshotOf(name: string): ServicePortSnapshot | undefined {
    const entry = this.#entries.get(name);
    if (entry !== undefined) {
      const { protocol, balancer, counters } = entry.owner;
      const listeners = entry.claims.flatMap((claim) => claimStatus(claim) ?? []);
      return { name, protocol, listeners, endpoints: balancer.size, counters };
    }
    const owner = this.#draining.get(name);
    if (owner === undefined) return undefined;
    const { protocol, counters } = owner;
    return { name, protocol, listeners: [], endpoints: 0, counters, draining: true };
  }

  #add({ name, protocol, affinity }: ServicePortSpec, slot: number | undefined): Entry {
    const previous = this.#draining.get(name);
    this.#draining.delete(name);
    const before = previous?.protocol === protocol ? previous.counters : undefined;
    const counters = this.#newCounters(slot, before);
    const owner: ServicePort = {
      name,
      protocol,
      balancer: this.#newBalancer(affinity),
      counters,
      udpIdleTimeoutMs: this.#limits.udpIdleTimeoutMs,
    };
    const entry = { owner, claims: [], hasOwnIdle: false };
    this.#entries.set(name, entry);
    return entry;
  }

  /** As many as there are relays of removed service ports, at most. */
  #forgetDrained(): void {
    for (const [name, { counters }] of this.#draining)
      if (counters.active === 0) this.#draining.delete(name);
  }
}

/** Replaces or changes the endpoints of a service port; returns the removed ones. */
export function updateEndpoints(
  owner: ServicePort,
  change: EndpointChanges | { readonly endpoints: readonly EndpointSpec[] },
): readonly BalancerEndpoint[] {
  const { name, balancer } = owner;
  const admits = (each: EndpointSpec): boolean => isUsable(name, each);
  // Drained endpoints are not changed by a patch.
  if ('removed' in change) return balancer.patch(change, admits);
  const traffic = new Set<Traffic>();
  for (const { drained = NOT_DRAINED } of change.endpoints)
    for (const each of drained) traffic.add(each);
  owner.drained = traffic;
  return balancer.update(change.endpoints, admits);
}

const NOT_DRAINED: readonly Traffic[] = [];
