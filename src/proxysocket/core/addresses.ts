import { familyOf, type Family } from '../../util/family.ts';
import type { ListenSpec, ServicePortSpec } from '../spec.ts';

/** A node port, which is at every address of the host, has no address. */
export function routeKey(family: Family, address: string | undefined, port: number): string {
  return `${address ?? `*${family}`} ${port}`;
}

/** The addresses of clients that a listener gets from shared sockets. */
export function routeKeys({ address, transparent = [] }: ListenSpec): string[] {
  return transparent.map((each) => routeKey(familyOf(address), each.address, each.port));
}

/** The addresses of clients whose packets reach a service port by rules. Without listeners, another one may have them. */
export function addressKeys({ listen, portals = [] }: ServicePortSpec): string[] {
  if (listen.length === 0) return [];
  const keys = listen.flatMap(routeKeys);
  if (keys.length < 2 && portals.length === 0) return keys;
  // A node port is on every address of the host, of both families.
  const ofRules = portals.flatMap(({ address, port }) => [
    routeKey(4, address, port),
    routeKey(6, address, port),
  ]);
  return [...new Set([...keys, ...ofRules])];
}

/** The names of service ports by address. Of several with one address, the last one to get it has its clients. */
export class AddressIndex {
  /** The usual single name is no list: there are some hundred thousand. */
  readonly #names = new Map<string, string | readonly string[]>();
  readonly #keys = new Map<string, readonly string[]>();

  at(key: string): string | undefined {
    const names = this.#names.get(key);
    return typeof names === 'string' ? names : names?.at(-1);
  }

  /** Replaces the addresses of a service port. */
  set(name: string, keys: readonly string[]): void {
    const before = this.#keys.get(name) ?? [];
    if (keys.length > 0) this.#keys.set(name, keys);
    else this.#keys.delete(name);
    for (const key of before) if (!keys.includes(key)) this.#drop(key, name);
    for (const key of keys) {
      const names = this.#names.get(key);
      if (names === undefined) this.#names.set(key, name);
      else if (!before.includes(key)) this.#names.set(key, [names, name].flat());
    }
  }

  #drop(key: string, name: string): void {
    const others = [this.#names.get(key) ?? []].flat().filter((each) => each !== name);
    const [only] = others;
    if (only === undefined) this.#names.delete(key);
    else this.#names.set(key, others.length === 1 ? only : others);
  }
}

/**
 * The keys of a service port's listeners, in order. A listener on port 0 keeps its kernel-chosen port while the service
 * port has as many of its address and traffic. An address listed twice yields the same key twice.
 */
export function slotKeys(
  owner: Pick<ServicePortSpec, 'name' | 'protocol'>,
  listen: readonly ListenSpec[],
): string[] {
  const { name, protocol } = owner;
  const ordinals = new Map<string, number>();
  return listen.map(({ address, port, traffic, transparent }) => {
    if (protocol === 'TCP' && transparent !== undefined) return `${SHARED} ${address}`;
    if (port !== 0) return `${protocol} ${address} ${port}`;
    const key = `${protocol} ${address} 0 ${name} ${traffic}`;
    const ordinal = ordinals.get(key) ?? 0;
    ordinals.set(key, ordinal + 1);
    return `${key} ${ordinal}`;
  });
}

const SHARED = 'shared TCP';

/** Whether several service ports use the socket. */
export function isShared(key: string): boolean {
  return key.startsWith(SHARED);
}
