import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import type { ServicePort } from '../core/service-port.ts';

/** Where a client sends from: the key of its session at a listening socket. */
export interface ClientAddress {
  /** IP literal. */
  readonly address: string;
  readonly port: number;
}

/**
 * Values by client address and port. Nested instead of keyed by a joined text, which would have to
 * be built and hashed for every datagram.
 */
export class ClientTable<V extends { readonly client: ClientAddress }> {
  readonly #byAddress = new Map<string, Map<number, V>>();

  get(address: string, port: number): V | undefined {
    return this.#byAddress.get(address)?.get(port);
  }

  add(value: V): void {
    const { address, port } = value.client;
    const ports = this.#byAddress.get(address);
    if (ports === undefined) this.#byAddress.set(address, new Map([[port, value]]));
    else ports.set(port, value);
  }

  delete(value: V): void {
    const { address, port } = value.client;
    const ports = this.#byAddress.get(address);
    if (ports?.get(port) !== value) return;
    ports.delete(port);
    if (ports.size === 0) this.#byAddress.delete(address);
  }

  get isEmpty(): boolean {
    return this.#byAddress.size === 0;
  }

  /** Deleting while iterating is fine. */
  *values(): Generator<V> {
    for (const ports of this.#byAddress.values()) yield* ports.values();
  }
}

/** What is indexed: something that belongs to a service port and to one of its endpoints. */
export interface Indexed {
  readonly owner: ServicePort;
  /** Only changed while not in the index. */
  readonly endpoint: BalancerEndpoint;
}

/** Finds what has to end with an endpoint or with a service port, without looking at anything else. */
export class SessionIndex<V extends Indexed> {
  readonly #byOwner = new Map<ServicePort, Map<BalancerEndpoint, Set<V>>>();

  add(value: V): void {
    let byEndpoint = this.#byOwner.get(value.owner);
    if (byEndpoint === undefined) {
      byEndpoint = new Map();
      this.#byOwner.set(value.owner, byEndpoint);
    }
    const values = byEndpoint.get(value.endpoint);
    if (values === undefined) byEndpoint.set(value.endpoint, new Set([value]));
    else values.add(value);
  }

  delete(value: V): void {
    const byEndpoint = this.#byOwner.get(value.owner);
    const values = byEndpoint?.get(value.endpoint);
    if (byEndpoint === undefined || values === undefined) return;
    values.delete(value);
    if (values.size > 0) return;
    byEndpoint.delete(value.endpoint);
    if (byEndpoint.size === 0) this.#byOwner.delete(value.owner);
  }

  ofEndpoint(owner: ServicePort, endpoint: BalancerEndpoint): V[] {
    return [...(this.#byOwner.get(owner)?.get(endpoint) ?? [])];
  }

  ofOwner(owner: ServicePort): V[] {
    return [...(this.#byOwner.get(owner)?.values() ?? [])].flatMap((values) => Array.from(values));
  }

  countOf(owner: ServicePort, endpoint: BalancerEndpoint): number {
    return this.#byOwner.get(owner)?.get(endpoint)?.size ?? 0;
  }

  /** All of them, by service port and endpoint. Do not change the index meanwhile. */
  *[Symbol.iterator](): Generator<V, void, void> {
    for (const byEndpoint of this.#byOwner.values()) {
      for (const values of byEndpoint.values()) yield* values;
    }
  }

  all(): V[] {
    return [...this.#byOwner.keys()].flatMap((owner) => this.ofOwner(owner));
  }
}
