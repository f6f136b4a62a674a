import type { PortRange } from '../util/port-range.ts';
import type { PortalProblem } from './portal.ts';

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

  /** `random` is evenly distributed in [0, 1), as `Math.random`. */
  constructor(range: PortRange | undefined, random: () => number) {
    this.#range = range;
    this.#random = random;
    for (let port = range?.first ?? 1; port <= (range?.last ?? 0); port += 1) this.#free.push(port);
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

  /** A port that nobody has; 0 when the kernel is to choose; undefined when none is left. */
  allocate(): number | undefined {
    if (this.#range === undefined) return 0;
    const index = Math.floor(this.#random() * this.#free.length);
    const port = this.#free[index];
    const last = this.#free.pop();
    if (port === undefined || last === undefined) return undefined;
    if (port !== last) this.#free[index] = last;
    this.#taken.add(port);
    return port;
  }

  /** Takes a port back. Ports that it did not hand out are ignored. */
  release(port: number): void {
    if (this.#taken.delete(port)) this.#free.push(port);
  }
}
