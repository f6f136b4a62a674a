import { isIPv6, SocketAddress } from 'node:net';
import { familyOf, type Family } from '../../util/family.ts';
import type { EndpointSpec, ListenSpec, PortalAddress, ServicePortSpec } from '../spec.ts';
import { isUsable } from './endpoint-patch.ts';

/**
 * Creates or changes a service port whose clients arrive at shared sockets, in the form that takes the least memory and
 * time between threads: there may be 100,000, and few of them have clients.
 */
export interface SharedChange {
  readonly kind: 'shared';
  readonly name: string;
  /** The addresses of its clients' connections, see `routeKeys`. */
  readonly keys: readonly string[];
  /** The `ServicePortSpec` in JSON. */
  readonly spec: string;
  /** See `EngineChange`. */
  readonly slot?: number | undefined;
}

/** Whether clients of a service port arrive at sockets that it shares with others. */
export function usesSharedSockets({ protocol, listen }: ServicePortSpec): boolean {
  const [first] = listen;
  return protocol === 'TCP' && first?.transparent !== undefined && first.transparent.length > 0;
}

export function sharedChange(spec: ServicePortSpec, slot: number | undefined): SharedChange {
  const { name } = spec;
  const endpoints = spec.endpoints.filter((each) => isUsable(name, each));
  const keys = spec.listen.flatMap(routeKeys);
  return { kind: 'shared', name, keys, spec: JSON.stringify({ ...spec, endpoints }), slot };
}

/** The addresses of one listener. */
export function routeKeys({ address, transparent = [] }: ListenSpec): string[] {
  const family = familyOf(address);
  return transparent.map(({ address: each, port }) => routeKey(family, canonical(each), port));
}

/** A node port, which is at every address of the host, has no address. */
export function routeKey(family: Family, address: string | undefined, port: number): string {
  return `${address ?? `*${family}`} ${port}`;
}

/** In the kernel's spelling. */
function canonical(address: PortalAddress['address']): string | undefined {
  if (address === undefined || !isIPv6(address)) return address;
  return new SocketAddress({ address, family: 'ipv6' }).address;
}

/** Addresses, and what their clients are handed to: a listener, or the name of a service port that has none yet. */
export interface Route<L extends object> {
  readonly keys: readonly string[];
  readonly target: L | string;
}

/**
 * Service ports whose clients arrive at shared sockets. Such a service port is kept as text until its first client
 * comes; then the engine makes it, and its listeners take the place of its name.
 */
export class SharedServicePorts<L extends object> {
  readonly #texts = new Map<string, SharedChange>();
  /** Of several service ports with one address, the last one to get it has its clients. */
  readonly #targets = new Map<string, L | string>();
  readonly #others = new Map<string, (L | string)[]>();
  #latest: L | undefined;
  #wake: (change: SharedChange) => void = () => undefined;

  /** `wake` makes a service port with its listeners. */
  onFirstClient(wake: (change: SharedChange) => void): void {
    this.#wake = wake;
  }

  /** Sets a service port that has had no client. */
  set(change: SharedChange): void {
    const { name } = change;
    this.#replace(this.#routesOf(name), [{ keys: change.keys, target: name }]);
    this.#texts.set(name, change);
  }

  /** The service port, if it has had no client. */
  get(name: string): ServicePortSpec | undefined {
    const text = this.#texts.get(name)?.spec;
    return text === undefined ? undefined : (JSON.parse(text) as ServicePortSpec);
  }

  /** Changes its endpoints; false if there is no such service port, or it has had a client. */
  setEndpoints(
    name: string,
    update: (before: readonly EndpointSpec[]) => readonly EndpointSpec[],
  ): boolean {
    const change = this.#texts.get(name);
    const spec = this.get(name);
    if (change === undefined || spec === undefined) return false;
    this.#texts.set(
      name,
      sharedChange({ ...spec, endpoints: update(spec.endpoints) }, change.slot),
    );
    return true;
  }

  /** Idempotent. */
  remove(name: string): void {
    this.#replace(this.#routesOf(name), []);
    this.#texts.delete(name);
  }

  clear(): void {
    this.#texts.clear();
    this.#targets.clear();
    this.#others.clear();
    this.#latest = undefined;
  }

  /** The listener for clients of an address; undefined: no service port has it. */
  at(key: string): L | undefined {
    const target = this.#targets.get(key);
    if (typeof target !== 'string') return target;
    const change = this.#texts.get(target);
    if (change === undefined) return undefined;
    this.#wake(change);
    const made = this.#targets.get(key);
    return typeof made === 'string' ? undefined : made;
  }

  /** The service port with an address, if it has had no client. */
  dormant(key: string): ServicePortSpec | undefined {
    const target = this.#targets.get(key);
    return typeof target === 'string' ? this.get(target) : undefined;
  }

  /** A listener, if possible one that has had clients; undefined: there is no service port. */
  any(): L | undefined {
    if (this.#latest !== undefined) return this.#latest;
    const [key] = this.#targets.keys();
    return key === undefined ? undefined : this.at(key);
  }

  /** Replaces the listeners of a service port that has clients. */
  route(name: string, before: readonly Route<L>[], after: readonly Route<L>[]): void {
    this.#replace([...this.#routesOf(name), ...before], after);
    this.#texts.delete(name);
    if (before.some(({ target }) => target === this.#latest)) this.#latest = undefined;
    for (const { target } of after) if (typeof target !== 'string') this.#latest = target;
  }

  #replace(before: readonly Route<L>[], after: readonly Route<L>[]): void {
    for (const { keys, target } of before) {
      for (const key of keys) {
        this.#exchange(key, target, after.find((each) => each.keys.includes(key))?.target);
      }
    }
    for (const { keys, target } of after) {
      for (const key of keys) {
        if (before.some((each) => each.keys.includes(key))) continue;
        const current = this.#targets.get(key);
        this.#targets.set(key, target);
        if (current !== undefined)
          this.#others.set(key, [...(this.#others.get(key) ?? []), current]);
      }
    }
  }

  /** `after`: undefined if the service port loses the address. */
  #exchange(key: string, before: L | string, after: L | string | undefined): void {
    const others = this.#others.get(key) ?? [];
    const place = others.indexOf(before);
    if (place >= 0) others.splice(place, 1, ...(after === undefined ? [] : [after]));
    if (this.#targets.get(key) === before) {
      const next = after ?? others.pop();
      if (next === undefined) this.#targets.delete(key);
      else this.#targets.set(key, next);
    }
    if (others.length === 0) this.#others.delete(key);
  }

  #routesOf(name: string): Route<L>[] {
    const change = this.#texts.get(name);
    return change === undefined ? [] : [{ keys: change.keys, target: name }];
  }
}

/** What the owner of shared sockets at an address is called, where others have the name of a service port. */
export function sharedSocketsName(address: string): string {
  return `${SHARED_SOCKETS} (${address})`;
}

const SHARED_SOCKETS = 'all TCP service ports';

/** Whether a name in an event is that of the owner of shared sockets. */
export function isSharedSockets(servicePort: string): boolean {
  return servicePort.startsWith(SHARED_SOCKETS);
}
