import { addressKeys, type AddressIndex } from './addresses.ts';
import type { EndpointSpec, EngineChange, ServicePortSpec } from '../spec.ts';

/**
 * Creates or changes a service port whose clients arrive at shared sockets, in the form that takes the least memory and
 * time between threads: there may be 100,000, and few of them have clients.
 */
export interface SharedChange {
  readonly kind: 'shared';
  readonly name: string;
  /** See `addressKeys`. */
  readonly keys: readonly string[];
  readonly spec: string;
  readonly slot?: number | undefined;
}

/** Whether clients of a service port arrive at sockets that it shares with others. */
export function usesSharedSockets({ protocol, listen }: ServicePortSpec): boolean {
  return protocol === 'TCP' && (listen[0]?.transparent?.length ?? 0) > 0;
}

export function sharedChange(spec: ServicePortSpec, slot: number | undefined): SharedChange {
  const { name } = spec;
  return { kind: 'shared', name, keys: addressKeys(spec), spec: JSON.stringify(spec), slot };
}

/** Service ports of shared sockets: text until the first client, for whom the engine makes the listeners. */
export class SharedServicePorts<L extends object> {
  readonly #texts = new Map<string, SharedChange>();
  /** The listeners of the others, by address. */
  readonly #listeners = new Map<string, ReadonlyMap<string, L>>();
  readonly #addresses: AddressIndex;
  readonly #wake: (change: SharedChange) => void;

  /** `addresses`: of all service ports. `wake`: makes a service port with its listeners, for its first client. */
  constructor(addresses: AddressIndex, wake: (change: SharedChange) => void) {
    this.#addresses = addresses;
    this.#wake = wake;
  }

  set(change: SharedChange): void {
    this.#addresses.set(change.name, change.keys);
    this.#texts.set(change.name, change);
  }

  /** The service port, if it has had no client. */
  get(name: string): ServicePortSpec | undefined {
    const text = this.#texts.get(name)?.spec;
    return text === undefined ? undefined : (JSON.parse(text) as ServicePortSpec);
  }

  /** Changes its endpoints; false if there is no such service port, or it has had a client. */
  setEndpoints(name: string, endpoints: readonly EndpointSpec[]): boolean {
    const spec = this.get(name);
    if (spec === undefined) return false;
    this.#texts.set(name, sharedChange({ ...spec, endpoints }, this.#texts.get(name)?.slot));
    return true;
  }

  /** Replaces the listeners of a service port that has clients, or is removed; the first one at an address has it. */
  route(name: string, routes: readonly (readonly [keys: readonly string[], listener: L])[]): void {
    const listeners = new Map<string, L>();
    for (const [keys, listener] of routes.toReversed()) {
      for (const key of keys) listeners.set(key, listener);
    }
    this.#texts.delete(name);
    if (listeners.size > 0) this.#listeners.set(name, listeners);
    else this.#listeners.delete(name);
  }

  clear(): void {
    this.#texts.clear();
    this.#listeners.clear();
  }

  /** The listener for clients of an address; undefined: no service port has it. */
  at(key: string): L | undefined {
    const name = this.#addresses.at(key) ?? '';
    const change = this.#texts.get(name);
    if (change !== undefined) this.#wake(change);
    return this.#listeners.get(name)?.get(key);
  }

  /** A listener, if possible one that has had clients; undefined: there is no service port. */
  any(): L | undefined {
    const [awake] = this.#listeners.values();
    const [text] = this.#texts.values();
    const [listener] = awake?.values() ?? [];
    return listener ?? this.at(text?.keys[0] ?? '');
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
export function inParts(changes: readonly EngineChange[]): (readonly EngineChange[])[] {
  if (changes.length <= PART || changes.some(({ kind }) => kind !== 'set')) return [changes];
  const { shared = [], others = [] } = Object.groupBy(changes, (change) =>
    change.kind === 'set' && usesSharedSockets(change.spec) ? 'shared' : 'others',
  );
  const parts = [];
  for (let start = 0; start < shared.length; start += PART) {
    parts.push(shared.slice(start, start + PART));
  }
  return [...parts, others];
}
