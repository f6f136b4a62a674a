import type { Balancer, BalancerEndpoint, Pick, PickRequest } from '../../roundrobin/types.ts';

const NONE: readonly BalancerEndpoint[] = [];

/**
 * Which endpoint a client is to be connected to next.
 *
 * Each attempt takes an endpoint that this client has not tried, while there is one. Endpoints that
 * only were too slow are tried again after that, with the longer limit of the later attempts; those
 * that refused are not.
 */
export class Tries {
  readonly #most: number;
  #made = 0;
  #tried = NONE;
  /** The part of `tried` that will not be tried again. */
  #refused = NONE;

  /** `most`: how many attempts there are. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Attempts made, the present one included. */
  get made(): number {
    return this.#made;
  }

  get tried(): readonly BalancerEndpoint[] {
    return this.#tried;
  }

  /**
   * Picks for the next attempt and counts it; undefined when none is left to make. `request` tells
   * `tried` of this object.
   */
  next(balancer: Balancer, request: PickRequest): Pick | undefined {
    if (this.#made >= this.#most) return undefined;
    const pick = this.#pick(balancer, request);
    if (pick !== undefined) this.#made += 1;
    return pick;
  }

  /** The present attempt failed; `slow`: it might do with more time. */
  failed(endpoint: BalancerEndpoint, slow: boolean): void {
    this.#tried = [...this.#tried, endpoint];
    if (!slow) this.#refused = [...this.#refused, endpoint];
  }

  /** The present attempt does not count: the next one may take as long as it could have. */
  withdraw(): void {
    this.#made -= 1;
  }

  /** A balancer that has nothing untried left returns one that was tried. */
  #pick(balancer: Balancer, request: PickRequest): Pick | undefined {
    const pick = balancer.pick(request);
    if (pick === undefined || !this.#tried.includes(pick.endpoint)) return pick;
    this.#tried = this.#refused;
    const again = balancer.pick(request);
    return again === undefined || this.#refused.includes(again.endpoint) ? undefined : again;
  }
}
