import { isDeepStrictEqual } from 'node:util';
import type { ListenSpec, Traffic } from '../proxysocket/spec.ts';
import type { PortRange } from '../util/port-range.ts';
import type { PortalProblem } from './portal.ts';

/** The key of a listener's reserved port. */
export function reservationKey(servicePort: string, address: string, traffic: Traffic): string {
  return `${servicePort} ${address} ${traffic}`;
}

/**
 * Allocates ports of a range at random, so that a port is seldom reused soon; without a range the kernel chooses.
 *
 * Both operations take constant time.
 */
export class PortAllocator {
  readonly #range: PortRange | undefined;
  readonly #random: () => number;
  readonly #free: number[] = [];
  readonly #taken = new Set<number>();
  /** Ports that another program holds or held; they are allocated last. */
  readonly #foreign: number[] = [];
  /** Ports reserved for the listener that had them in a previous process. */
  readonly #reserved: Map<string, number>;

  /**
   * `random`: as `Math.random`. `previous`: ports of a previous process by `reservationKey`. `unusable`: reserved by the
   * system.
   */
  constructor(
    range: PortRange | undefined,
    random: () => number,
    previous: ReadonlyMap<string, number> = new Map(),
    unusable: readonly PortRange[] = [],
  ) {
    this.#range = range;
    this.#random = random;
    const { first, last } = range ?? { first: 1, last: 0 };
    this.#reserved = new Map([...previous].filter(([, port]) => port >= first && port <= last));
    const reserved = new Set(this.#reserved.values());
    for (let port = first; port <= last; port += 1) {
      const isUsable = !unusable.some((range) => port >= range.first && port <= range.last);
      if (isUsable && !reserved.has(port)) this.#free.push(port);
    }
  }

  /** The error for a service port that got no port. */
  exhausted(servicePort: string): PortalProblem {
    const range = this.#range === undefined ? '' : `${this.#range.first}-${this.#range.last}`;
    return {
      servicePort,
      portal: undefined,
      code: 'KPNG_PORT_RANGE_EXHAUSTED',
      message:
        `${servicePort} has no proxy port: all of ${range} are taken; ` +
        'make --port-range larger, or leave it out',
    };
  }

  /** A free port, preferably the listener's previous one; 0: the kernel chooses; undefined: none is left. */
  allocate(listener?: string): number | undefined {
    if (this.#range === undefined) return 0;
    const previous = listener === undefined ? undefined : this.#reserved.get(listener);
    if (listener !== undefined && previous !== undefined && !this.#taken.has(previous)) {
      this.#reserved.delete(listener);
      this.#taken.add(previous);
      return previous;
    }
    if (this.#free.length === 0) {
      for (const port of new Set(this.#reserved.values())) this.#free.push(port);
      this.#reserved.clear();
    }
    if (this.#free.length === 0) {
      const port = this.#foreign.shift();
      if (port !== undefined) this.#taken.add(port);
      return port;
    }
    const index = Math.floor(this.#random() * this.#free.length);
    const port = this.#free[index];
    const last = this.#free.pop();
    if (port === undefined || last === undefined) return undefined;
    if (port !== last) this.#free[index] = last;
    this.#taken.add(port);
    return port;
  }

  /** Whether ports come from a range; otherwise the kernel chooses them. */
  get hasRange(): boolean {
    return this.#range !== undefined;
  }

  get isExhausted(): boolean {
    return !this.hasOther && this.#foreign.length === 0;
  }

  /** Whether a port is left that no other program is known to hold. */
  get hasOther(): boolean {
    return this.#range === undefined || this.#free.length > 0 || this.#reserved.size > 0;
  }

  /** Takes back a port that another program holds. It is allocated again only if no other is left. */
  reject(port: number): void {
    if (this.#taken.delete(port)) this.#foreign.push(port);
  }

  /** Takes a port back. Ports that it did not hand out are ignored. */
  release(port: number): void {
    if (this.#taken.delete(port)) this.#free.push(port);
  }
}

/** A listener of a service port: on any port if it names none. */
export type ProxyListener = Omit<ListenSpec, 'port'> & { readonly port?: number };

/** The proxy ports of service ports. A port that another program holds is replaced if possible. */
export class ProxyPorts {
  readonly #allocator: PortAllocator;
  readonly #listen = new Map<string, readonly ListenSpec[]>();
  /** All listeners of service ports that wait for a port. */
  readonly #waiting = new Map<string, readonly ProxyListener[]>();
  readonly #foreign = new Map<string, Set<number>>();
  /** Released ports: rules redirect to them until the plan is applied. */
  readonly #dropped: number[] = [];

  constructor(allocator: PortAllocator) {
    this.#allocator = allocator;
  }

  /**
   * Replaces the listeners that service ports need; none: the service port is gone. Adds those that wait for a port, or
   * need another one, to the map. Listeners keep their ports. Released ports are reused at once only when no other is
   * left. Returns the service ports whose listeners differ.
   */
  update(needed: Map<string, readonly ProxyListener[]>): Set<string> {
    for (const name of this.#foreign.keys()) {
      if (!needed.has(name)) needed.set(name, this.#needed(name));
    }
    const changed = new Set<string>();
    for (const [name, listeners] of needed) {
      if (this.#dropUnneeded(name, listeners)) changed.add(name);
    }
    if (this.#dropped.length > 0 || !this.#allocator.isExhausted) {
      for (const [name, listeners] of this.#waiting) {
        if (!needed.has(name)) needed.set(name, listeners);
      }
    }
    // Where the kernel chooses, the order does not matter.
    const names = this.#allocator.hasRange ? [...needed.keys()].sort() : needed.keys();
    for (const name of names) if (this.#allocateMissing(name, needed.get(name))) changed.add(name);
    this.#releaseDropped();
    return changed;
  }

  listen(name: string): readonly ListenSpec[] {
    return this.#listen.get(name) ?? [];
  }

  /** See `Portal.portTaken`. */
  portTaken(name: string, { port }: ListenSpec): void {
    const ports = this.#foreign.get(name);
    if (ports === undefined) this.#foreign.set(name, new Set([port]));
    else ports.add(port);
  }

  /** Marks a port as ours, even if it was reserved. */
  opened(name: string, port: number): void {
    this.#foreign.get(name)?.delete(port);
  }

  /** At most one, with the number of service ports that wait for a port. */
  problems(): PortalProblem[] {
    const [first] = this.#waiting.keys();
    if (first === undefined) return [];
    return [{ ...this.#allocator.exhausted(first), count: this.#waiting.size }];
  }

  #needed(name: string): readonly ProxyListener[] {
    const needed = ({ port, ...spec }: ListenSpec): ProxyListener =>
      isFixed(spec) ? { ...spec, port } : spec;
    return this.#waiting.get(name) ?? this.listen(name).map(needed);
  }

  #dropUnneeded(name: string, needed: readonly ProxyListener[]): boolean {
    const before = this.listen(name);
    const foreign = this.#foreign.get(name);
    const indexOf = listenerIndex(needed);
    const kept = before.filter((spec) => {
      const { port } = spec;
      const isForeign = foreign?.has(port) === true && !isFixed(spec) && this.#allocator.hasOther;
      if (!isForeign && fits(spec, needed[indexOf(spec)])) return true;
      if (isForeign) this.#allocator.reject(port);
      else this.#dropped.push(port);
      foreign?.delete(port);
      return false;
    });
    if (needed.length === 0 || foreign?.size === 0) this.#foreign.delete(name);
    if (kept.length === before.length) return false;
    this.#listen.set(name, kept);
    return true;
  }

  #allocateMissing(name: string, needed: readonly ProxyListener[] = []): boolean {
    const before = this.listen(name);
    const indexOf = listenerIndex(before);
    const all = needed.map((listener) => {
      const known = before[indexOf(listener)];
      const kept = known !== undefined && fits(known, listener) ? known.port : undefined;
      const port = kept ?? listener.port ?? this.#allocate(name, listener);
      return port === undefined ? undefined : { ...listener, port };
    });
    const after = all.filter((spec) => spec !== undefined);
    if (after.length < needed.length) this.#waiting.set(name, needed);
    else this.#waiting.delete(name);
    // A copy has no spare capacity.
    if (after.length > 0) this.#listen.set(name, [...after]);
    else this.#listen.delete(name);
    return !isDeepStrictEqual(before, after);
  }

  #allocate(name: string, { address, traffic }: ProxyListener): number | undefined {
    const key = reservationKey(name, address, traffic);
    const port = this.#allocator.allocate(key);
    if (port !== undefined) return port;
    this.#releaseDropped();
    return this.#allocator.allocate(key);
  }

  #releaseDropped(): void {
    for (const port of this.#dropped) this.#allocator.release(port);
    this.#dropped.length = 0;
  }
}

/** Whether the port is the listener's own: transparent sockets are not on proxy ports. */
function isFixed({ transparent }: Pick<ListenSpec, 'transparent'>): boolean {
  return transparent !== undefined;
}

/** Whether a listener of the same address and traffic can stay. */
function fits({ port }: ListenSpec, needed: ProxyListener | undefined): boolean {
  return needed !== undefined && port === (needed.port ?? port);
}

type Place = Pick<ListenSpec, 'address' | 'traffic'>;

/** Listeners of a service port that are searched one by one; transparent ones for UDP may be thousands. */
const FEW = 16;

/** Finds the index of the listener of an address and kind of traffic; -1: there is none. */
export function listenerIndex(listeners: readonly Place[]): (of: Place) => number {
  if (listeners.length <= FEW) return (of) => listeners.findIndex((each) => isSamePlace(each, of));
  const indexes = new Map(listeners.map((each, index) => [placeKey(each), index]));
  return (of) => indexes.get(placeKey(of)) ?? -1;
}

export function isSamePlace(a: Place, b: Place): boolean {
  return a.address === b.address && a.traffic === b.traffic;
}

function placeKey({ address, traffic }: Place): string {
  return `${address} ${traffic}`;
}
