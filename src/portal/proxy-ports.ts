import type {
  ClusterClients,
  ListenSpec,
  PortalAddress,
  Protocol,
  Traffic,
} from '../proxysocket/spec.ts';
import type { PortRange } from '../util/port-range.ts';
import { type PortalProblem, sameListen } from './portal.ts';

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

  /** Whether `allocate` currently finds no port. */
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

/** A listener of a service port, on any port. */
export interface ProxyListener {
  readonly protocol: Protocol;
  readonly address: string;
  readonly traffic: Traffic;
  /** The port that it has to have. Absent: any. */
  readonly port?: number;
  /** See `ListenSpec`. */
  readonly transparent?: readonly PortalAddress[];
  readonly clusterClients?: ClusterClients;
}

interface Allocated {
  readonly listener: ProxyListener;
  readonly spec: ListenSpec;
}

/** The proxy ports of service ports. A port that another program holds is replaced if possible. */
export class ProxyPorts {
  readonly #allocator: PortAllocator;
  readonly #needed = new Map<string, readonly ProxyListener[]>();
  readonly #allocated = new Map<string, readonly Allocated[]>();
  /** Service ports that wait for a port. */
  readonly #waiting = new Set<string>();
  /** Ports that other programs hold, by service port. */
  readonly #foreign = new Map<string, Set<number>>();
  /** Released ports: rules redirect to them until the plan is applied. */
  readonly #dropped: number[] = [];

  constructor(allocator: PortAllocator) {
    this.#allocator = allocator;
  }

  /**
   * Replaces the listeners that service ports need; none: the service port is gone. Listeners keep their ports.
   * Released ports are reused at once only when no other is left. Returns the service ports whose ports have changed.
   */
  update(needed: ReadonlyMap<string, readonly ProxyListener[]>): Set<string> {
    for (const [name, listeners] of needed) {
      if (listeners.length === 0) this.#needed.delete(name);
      else this.#needed.set(name, listeners);
    }
    const due = new Set([...needed.keys(), ...this.#foreign.keys()]);
    const changed = new Set([...due].filter((name) => this.#dropUnneeded(name)));
    const isFree = this.#dropped.length > 0 || !this.#allocator.isExhausted;
    if (isFree) for (const name of this.#waiting) due.add(name);
    for (const name of [...due].sort()) if (this.#allocateMissing(name)) changed.add(name);
    this.#releaseDropped();
    return changed;
  }

  /** The listen addresses of a service port. */
  listen(name: string): readonly ListenSpec[] {
    return (this.#allocated.get(name) ?? []).map(({ spec }) => spec);
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
    const [first] = this.#waiting;
    if (first === undefined) return [];
    return [{ ...this.#allocator.exhausted(first), count: this.#waiting.size }];
  }

  #dropUnneeded(name: string): boolean {
    const before = this.#allocated.get(name) ?? [];
    const needed = this.#needed.get(name) ?? [];
    const foreign = this.#foreign.get(name);
    const kept = before.filter(({ listener, spec: { port } }) => {
      const isForeign =
        foreign?.has(port) === true && listener.port === undefined && this.#allocator.hasOther;
      if (!isForeign && needed.some((each) => isSame(each, listener))) return true;
      if (isForeign) this.#allocator.reject(port);
      else this.#dropped.push(port);
      foreign?.delete(port);
      return false;
    });
    if (needed.length === 0 || foreign?.size === 0) this.#foreign.delete(name);
    if (kept.length === 0) this.#allocated.delete(name);
    else this.#allocated.set(name, kept);
    return kept.length < before.length;
  }

  #allocateMissing(name: string): boolean {
    this.#waiting.delete(name);
    const before = this.#allocated.get(name) ?? [];
    const after: Allocated[] = [];
    for (const listener of this.#needed.get(name) ?? []) {
      const known = before.find((each) => isSame(each.listener, listener));
      const port = known?.spec.port ?? listener.port ?? this.#allocate(name, listener);
      const { protocol: _, ...spec } = listener;
      if (port === undefined) this.#waiting.add(name);
      else after.push({ listener, spec: { ...spec, port } });
    }
    if (after.length > 0) this.#allocated.set(name, after);
    return !sameListen(
      before.map(({ spec }) => spec),
      after.map(({ spec }) => spec),
    );
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

function isSame(a: ProxyListener, b: ProxyListener): boolean {
  return (
    a.protocol === b.protocol &&
    a.address === b.address &&
    a.traffic === b.traffic &&
    a.port === b.port
  );
}
