import type { Traffic } from '../proxysocket/spec.ts';
import type { PortRange } from '../util/port-range.ts';
import type { PortalProblem } from './portal.ts';

/** Names a listener. */
export function formerKey(servicePort: string, address: string, traffic: Traffic): string {
  return `${servicePort} ${address} ${traffic}`;
}

/**
 * Hands out the ports of a range, in random order so that a port that was just given back is seldom
 * the next one, or leaves the choice to the kernel when there is no range.
 *
 * The free ports are kept in an array: taking one swaps it with the last free one, so both
 * operations take constant time.
 */
export class PortAllocator {
  readonly #range: PortRange | undefined;
  readonly #random: () => number;
  readonly #free: number[] = [];
  readonly #taken = new Set<number>();
  /** Ports that another program holds, or has held: the last to be handed out. */
  readonly #foreign: number[] = [];
  /** Ports that wait for the listener that had them in a former process. */
  readonly #reserved: Map<string, number>;

  /**
   * `random` is evenly distributed in [0, 1), as `Math.random`. `former`: ports that listeners had in a
   * process before this one, by `formerKey`. `unusable`: ports that the system lets nobody have.
   */
  constructor(
    range: PortRange | undefined,
    random: () => number,
    former: ReadonlyMap<string, number> = new Map(),
    unusable: readonly PortRange[] = [],
  ) {
    this.#range = range;
    this.#random = random;
    const { first, last } = range ?? { first: 1, last: 0 };
    this.#reserved = new Map([...former].filter(([, port]) => port >= first && port <= last));
    const reserved = new Set(this.#reserved.values());
    for (let port = first; port <= last; port += 1) {
      const isUsable = !unusable.some((range) => port >= range.first && port <= range.last);
      if (isUsable && !reserved.has(port)) this.#free.push(port);
    }
  }

  /** What there is to say of a service port that got no port. */
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

  /**
   * A port that nobody has: the one that the listener has had in a former process, if there was one; 0 when
   * the kernel is to choose; undefined when none is left.
   */
  allocate(listener?: string): number | undefined {
    if (this.#range === undefined) return 0;
    const former = listener === undefined ? undefined : this.#reserved.get(listener);
    if (listener !== undefined && former !== undefined && !this.#taken.has(former)) {
      this.#reserved.delete(listener);
      this.#taken.add(former);
      return former;
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

  /** Whether `allocate` finds no port now. */
  get isExhausted(): boolean {
    return !this.hasOther && this.#foreign.length === 0;
  }

  /** Whether a port is left that no other program has been found to hold. */
  get hasOther(): boolean {
    return this.#range === undefined || this.#free.length > 0 || this.#reserved.size > 0;
  }

  /** Takes back a port that another program holds. It is handed out again when no other is left. */
  reject(port: number): void {
    if (this.#taken.delete(port)) this.#foreign.push(port);
  }

  /** Takes a port back. Ports that it did not hand out are ignored. */
  release(port: number): void {
    if (this.#taken.delete(port)) this.#free.push(port);
  }
}
