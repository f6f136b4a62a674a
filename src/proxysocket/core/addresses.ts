import { isIPv6, SocketAddress } from 'node:net';
import { familyOf, type Family } from '../../util/family.ts';
import type { ListenSpec, PortalAddress, ServicePortSpec } from '../spec.ts';

/** A node port, which is at every address of the host, has no address. */
export function routeKey(family: Family, address: string | undefined, port: number): string {
  return `${address ?? `*${family}`} ${port}`;
}

/** The addresses of clients that a listener gets from shared sockets. */
export function routeKeys({ address, transparent = [] }: ListenSpec): string[] {
  return transparent.map((each) => keyOf(familyOf(address), each));
}

/** The addresses of clients whose packets reach a service port by rules. Without listeners, another one may have them. */
export function addressKeys({ listen, portals = [] }: ServicePortSpec): string[] {
  if (listen.length === 0) return [];
  // A node port is on every address of the host, of both families.
  const ofRules = portals.flatMap((each) => [keyOf(4, each), keyOf(6, each)]);
  return [...new Set([...listen.flatMap(routeKeys), ...ofRules])];
}

function keyOf(family: Family, { address, port }: PortalAddress): string {
  if (address === undefined || !isIPv6(address)) return routeKey(family, address, port);
  return routeKey(6, new SocketAddress({ address, family: 'ipv6' }).address, port);
}

/** The names of service ports by address. Of several with one address, the last one to get it has its clients. */
export class AddressIndex {
  readonly #names = new Map<string, string>();
  readonly #others = new Map<string, readonly string[]>();
  readonly #keys = new Map<string, readonly string[]>();

  at(key: string): string | undefined {
    return this.#names.get(key);
  }

  /** Replaces the addresses of a service port. */
  set(name: string, keys: readonly string[]): void {
    const before = this.#keys.get(name) ?? [];
    if (keys.length > 0) this.#keys.set(name, keys);
    else this.#keys.delete(name);
    for (const key of before) if (!keys.includes(key)) this.#drop(key, name);
    for (const key of keys) {
      const current = this.#names.get(key);
      if (before.includes(key) || current === name) continue;
      this.#names.set(key, name);
      if (current !== undefined) this.#others.set(key, [...(this.#others.get(key) ?? []), current]);
    }
  }

  #drop(key: string, name: string): void {
    const others = (this.#others.get(key) ?? []).filter((each) => each !== name);
    if (this.#names.get(key) === name) {
      const next = others.pop();
      if (next === undefined) this.#names.delete(key);
      else this.#names.set(key, next);
    }
    if (others.length === 0) this.#others.delete(key);
    else this.#others.set(key, others);
  }
}
