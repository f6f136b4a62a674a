import type { RoundRobinBalancer } from '../../roundrobin/balancer.ts';
import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import { countedIn, newCounters, type Activity, type ServicePortCounters } from '../counters.ts';
import type { ServicePortSnapshot } from '../engine.ts';
import type { ServicePort } from './service-port.ts';
import { sourceFilter } from './listener.ts';
import type { EndpointSpec, ListenerStatus, ServicePortSpec, Traffic } from '../spec.ts';

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
  readonly #newBalancer: () => RoundRobinBalancer;
  readonly #listenersOf: (owner: ServicePort) => ListenerStatus[];
  readonly #newCounters: NewCounters;
  readonly #present = new Map<string, ServicePort>();
  readonly #draining = new Map<string, ServicePort>();

  constructor(
    newBalancer: () => RoundRobinBalancer,
    listenersOf: (owner: ServicePort) => ListenerStatus[],
    counters: NewCounters = PLAIN,
  ) {
    this.#newBalancer = newBalancer;
    this.#listenersOf = listenersOf;
    this.#newCounters = counters;
  }

  get(name: string): ServicePort | undefined {
    return this.#present.get(name);
  }

  /** Creates or changes a service port; returns its removed endpoints, too. To change its protocol, remove it first. */
  set(
    spec: ServicePortSpec,
    slot?: number,
  ): { owner: ServicePort; gone: readonly BalancerEndpoint[] } {
    const { name, affinity, endpoints } = spec;
    const owner = this.#present.get(name) ?? this.#add(spec, slot);
    const isTransparent = spec.listen.some(({ transparent }) => transparent !== undefined);
    owner.udpIdleTimeoutMs = spec.udpIdleTimeoutMs;
    owner.keepsClients = isTransparent ? spec.keepsClients : undefined;
    owner.proxyProtocol = spec.proxyProtocol;
    owner.announcesClients = sourceFilter(name, spec.proxyProtocolFrom);
    owner.balancer.setAffinity(affinity);
    return { owner, gone: updateEndpoints(owner, endpoints) };
  }

  /** Removes a service port; while relays of it run, it stays in the snapshot. */
  remove(name: string): ServicePort | undefined {
    const owner = this.#present.get(name);
    if (owner === undefined) return undefined;
    this.#present.delete(name);
    owner.balancer.setAffinity({ kind: 'none' });
    this.#forgetDrained();
    if (owner.counters.active > 0) this.#draining.set(name, owner);
    return owner;
  }

  clear(): readonly ServicePort[] {
    return [...this.#present.keys()].flatMap((name) => this.remove(name) ?? []);
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    this.#forgetDrained();
    return [...(names ?? this.names())].flatMap((name): ServicePortSnapshot[] => {
      const present = this.#present.get(name);
      const owner = present ?? this.#draining.get(name);
      if (owner === undefined) return [];
      const { protocol, balancer, counters } = owner;
      const common = { name, protocol, counters };
      if (present === undefined)
        return [{ ...common, listeners: [], endpoints: 0, draining: true }];
      return [{ ...common, listeners: this.#listenersOf(owner), endpoints: balancer.size }];
    });
  }

  names(): string[] {
    return [...new Set([...this.#present.keys(), ...this.#draining.keys()])];
  }

  activity(): Activity {
    this.#forgetDrained();
    let [counted, active] = [0, 0];
    for (const owners of [this.#present, this.#draining]) {
      for (const { counters } of owners.values()) {
        counted += countedIn(counters);
        active += counters.active;
      }
    }
    return { servicePorts: this.#present.size + this.#draining.size, counted, active };
  }

  #add({ name, protocol }: ServicePortSpec, slot: number | undefined): ServicePort {
    const previous = this.#draining.get(name);
    this.#draining.delete(name);
    const before = previous?.protocol === protocol ? previous.counters : undefined;
    const counters = this.#newCounters(slot, before);
    const owner: ServicePort = { name, protocol, balancer: this.#newBalancer(), counters };
    this.#present.set(name, owner);
    return owner;
  }

  /** As many as there are relays of removed service ports, at most. */
  #forgetDrained(): void {
    for (const [name, { counters }] of this.#draining)
      if (counters.active === 0) this.#draining.delete(name);
  }
}

/** Replaces the endpoints of a service port; returns the removed ones. */
export function updateEndpoints(
  owner: ServicePort,
  endpoints: readonly EndpointSpec[],
): readonly BalancerEndpoint[] {
  owner.drained = new Set(endpoints.flatMap(({ drained = NOT_DRAINED }) => drained));
  return owner.balancer.update(endpoints);
}

const NOT_DRAINED: readonly Traffic[] = [];
