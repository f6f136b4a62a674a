import type { ListenSpec, Protocol, Traffic } from '../proxysocket/spec.ts';
import { formerKey, type PortAllocator } from './port-allocator.ts';
import type { PortalProblem } from './portal.ts';

/** A listener that a service port needs, on a port that does not matter. */
export interface ProxyListener {
  readonly protocol: Protocol;
  readonly address: string;
  readonly traffic: Traffic;
}

interface Allocated {
  readonly listener: ProxyListener;
  readonly spec: ListenSpec;
}

/** The proxy ports of service ports. A port that another program holds is replaced while there is another one. */
export class ProxyPorts {
  readonly #allocator: PortAllocator;
  readonly #needed = new Map<string, readonly ProxyListener[]>();
  readonly #allocated = new Map<string, readonly Allocated[]>();
  /** Service ports that wait for a port. */
  readonly #waiting = new Set<string>();
  /** Ports that other programs hold, by service port. */
  readonly #foreign = new Map<string, Set<number>>();
  /** Ports that an update gives up: rules redirect to them until its plan is carried out. */
  readonly #dropped: number[] = [];

  constructor(allocator: PortAllocator) {
    this.#allocator = allocator;
  }

  /**
   * Replaces what service ports need; no listener at all is for one that is gone. A listener keeps its port for as
   * long as it is needed. Ports that are given up are used again at once only when no other is left. Returns
   * the service ports whose ports have changed.
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

  /** What a service port is to listen on. */
  listen(name: string): readonly ListenSpec[] {
    return (this.#allocated.get(name) ?? []).map(({ spec }) => spec);
  }

  /** See `Portal.portTaken`. */
  portTaken(name: string, { port }: ListenSpec): void {
    const ports = this.#foreign.get(name);
    if (ports === undefined) this.#foreign.set(name, new Set([port]));
    else ports.add(port);
  }

  /** A port is ours, whoever has held it. */
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
      const isForeign = foreign?.has(port) === true && this.#allocator.hasOther;
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
      const port = known?.spec.port ?? this.#allocate(name, listener);
      const { address, traffic } = listener;
      if (port === undefined) this.#waiting.add(name);
      else after.push(known ?? { listener, spec: { address, port, traffic } });
    }
    if (after.length > 0) this.#allocated.set(name, after);
    return after.length > before.length;
  }

  #allocate(name: string, { address, traffic }: ProxyListener): number | undefined {
    const key = formerKey(name, address, traffic);
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
  return a.protocol === b.protocol && a.address === b.address && a.traffic === b.traffic;
}
