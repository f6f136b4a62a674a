import { isIPv6, SocketAddress } from 'node:net';
import { familyOf, type Family } from '../../util/family.ts';
import type {
  EndpointSpec,
  EngineChange,
  ListenSpec,
  PortalAddress,
  ServicePortSpec,
} from '../spec.ts';
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
  readonly spec: string;
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

export function routeKeys({ address, transparent = [] }: ListenSpec): string[] {
  const family = familyOf(address);
  return transparent.map(({ address: each, port }) => routeKey(family, canonical(each), port));
}

/** A node port, which is at every address of the host, has no address. */
export function routeKey(family: Family, address: string | undefined, port: number): string {
  return `${address ?? `*${family}`} ${port}`;
}

function canonical(address: PortalAddress['address']): string | undefined {
  if (address === undefined || !isIPv6(address)) return address;
  return new SocketAddress({ address, family: 'ipv6' }).address;
}

/** Service ports of shared sockets: text until the first client, for whom the engine makes the listeners. */
export class SharedServicePorts<L extends object> {
  readonly #texts = new Map<string, SharedChange>();
  /** The listeners of the others, by address. */
  readonly #listeners = new Map<string, ReadonlyMap<string, L>>();
  /** By address. Of several service ports with one address, the last one to get it has its clients. */
  readonly #names = new Map<string, string>();
  readonly #others = new Map<string, readonly string[]>();
  readonly #wake: (change: SharedChange) => void;

  /** `wake`: makes a service port with its listeners, for its first client. */
  constructor(wake: (change: SharedChange) => void) {
    this.#wake = wake;
  }

  set(change: SharedChange): void {
    const { name, keys } = change;
    this.#setKeys(name, keys);
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

  /** Replaces the listeners of a service port that has clients, with their addresses; the first one at an address has it. */
  route(name: string, routes: readonly (readonly [keys: readonly string[], listener: L])[]): void {
    const listeners = new Map<string, L>();
    for (const [keys, listener] of routes.toReversed()) {
      for (const key of keys) listeners.set(key, listener);
    }
    this.#setKeys(name, [...listeners.keys()]);
    this.#texts.delete(name);
    if (listeners.size > 0) this.#listeners.set(name, listeners);
    else this.#listeners.delete(name);
  }

  /** Idempotent. */
  remove(name: string): void {
    this.route(name, []);
  }

  clear(): void {
    for (const all of [this.#texts, this.#listeners, this.#names, this.#others]) all.clear();
  }

  /** The listener for clients of an address; undefined: no service port has it. */
  at(key: string): L | undefined {
    const name = this.#names.get(key);
    if (name === undefined) return undefined;
    const change = this.#texts.get(name);
    if (change !== undefined) this.#wake(change);
    return this.#listeners.get(name)?.get(key);
  }

  /** The name of the service port with an address, if it has had no client. */
  dormant(key: string): string | undefined {
    const name = this.#names.get(key);
    return name !== undefined && this.#texts.has(name) ? name : undefined;
  }

  /** A listener, if possible one that has had clients; undefined: there is no service port. */
  any(): L | undefined {
    const [listeners] = this.#listeners.values();
    const [key = ''] = listeners?.keys() ?? this.#names.keys();
    return listeners?.get(key) ?? this.at(key);
  }

  #setKeys(name: string, keys: readonly string[]): void {
    const before = this.#texts.get(name)?.keys ?? [...(this.#listeners.get(name)?.keys() ?? [])];
    for (const key of before) if (!keys.includes(key)) this.#drop(key, name);
    for (const key of keys) {
      if (before.includes(key)) continue;
      const current = this.#names.get(key);
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

/** What the owner of shared sockets at an address is called, where others have the name of a service port. */
export function sharedSocketsName(address: string): string {
  return `${SHARED_SOCKETS} (${address})`;
}

const SHARED_SOCKETS = 'all TCP service ports';

/** Whether a name in an event is that of the owner of shared sockets. */
export function isSharedSockets(servicePort: string): boolean {
  return servicePort.startsWith(SHARED_SOCKETS);
}

/** Service ports of shared sockets that a worker gets at once: some hundred kilobytes, which are garbage soon. */
const PART = 512;

/**
 * A large batch in parts, so that the whole is never in memory as text. Service ports of shared sockets do not depend on
 * each other; the others are in the last part.
 */
function inParts(changes: readonly EngineChange[]): (readonly EngineChange[])[] {
  if (changes.length <= PART || changes.some(({ kind }) => kind !== 'set')) return [changes];
  const isShared = (change: EngineChange) =>
    change.kind === 'set' && usesSharedSockets(change.spec);
  const shared = changes.filter(isShared);
  const parts = [];
  for (let start = 0; start < shared.length; start += PART) {
    parts.push(shared.slice(start, start + PART));
  }
  return [...parts, changes.filter((change) => !isShared(change))];
}

/** Applies a batch in parts: each is sent while the one before it is still being applied. */
export async function applyInParts(
  changes: readonly EngineChange[],
  apply: (part: readonly EngineChange[]) => Promise<void>,
): Promise<void> {
  let before: Promise<void> | undefined;
  for (const part of inParts(changes)) {
    const applied = apply(part);
    // The one before may fail first.
    applied.catch(() => undefined);
    await before;
    before = applied;
  }
  await before;
}
