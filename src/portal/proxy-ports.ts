import type { Traffic } from '../proxysocket/spec.ts';
import type { PortRange } from '../util/port-range.ts';

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
  /** Undefined: the kernel chooses the ports. */
  readonly range: PortRange | undefined;
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
    this.range = range;
    this.#random = random;
    const { first, last } = range ?? { first: 1, last: 0 };
    this.#reserved = new Map([...previous].filter(([, port]) => port >= first && port <= last));
    const reserved = new Set(this.#reserved.values());
    for (let port = first; port <= last; port += 1) {
      const isUsable = !unusable.some((range) => port >= range.first && port <= range.last);
      if (isUsable && !reserved.has(port)) this.#free.push(port);
    }
  }

  /** A free port, preferably the listener's previous one; 0: the kernel chooses; undefined: none is left. */
  allocate(listener = ''): number | undefined {
    if (this.range === undefined) return 0;
    const previous = this.#reserved.get(listener);
    const isFree = previous !== undefined && !this.#taken.has(previous);
    const port = isFree ? previous : this.#draw();
    if (isFree) this.#reserved.delete(listener);
    if (port !== undefined) this.#taken.add(port);
    return port;
  }

  /** Removes a random free port, else a reserved one, else one that another program held. */
  #draw(): number | undefined {
    if (this.#free.length === 0) {
      for (const port of new Set(this.#reserved.values())) this.#free.push(port);
      this.#reserved.clear();
    }
    const index = Math.floor(this.#random() * this.#free.length);
    const last = this.#free.pop();
    if (last === undefined) return this.#foreign.shift();
    // It was the last one itself.
    if (index === this.#free.length) return last;
    return this.#free.splice(index, 1, last)[0];
  }

  /** Whether a port is left that no other program is known to hold. */
  get hasOther(): boolean {
    return this.#free.length > 0 || this.#reserved.size > 0;
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
