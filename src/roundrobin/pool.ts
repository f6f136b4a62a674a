import type { Member } from './member.ts';
import { Ring, type RingNode } from './ring.ts';
import type { BalancerEndpoint } from './types.ts';

/**
 * The endpoints that may serve one kind of traffic of one address family, as two rotations: usable and skipped ones.
 * The second is used only while the first is empty.
 */
export class Pool {
  readonly #active = new Ring<Member>();
  readonly #skipped = new Ring<Member>();

  get size(): number {
    return this.#active.size + this.#skipped.size;
  }

  /** Whether every endpoint is being skipped. */
  get allSkipped(): boolean {
    return this.#active.size === 0;
  }

  join(seat: RingNode<Member>): void {
    this.#ringOf(seat).join(seat);
  }

  leave(seat: RingNode<Member>): void {
    this.#ringOf(seat).leave(seat);
  }

  /**
   * The next endpoint: untried and not skipped, else untried, else the next in rotation. An endpoint passed over
   * because it was tried loses its turn.
   */
  next(tried: readonly BalancerEndpoint[]): Member | undefined {
    if (tried.length > 0) {
      const fresh = untried(this.#active, tried) ?? untried(this.#skipped, tried);
      if (fresh !== undefined) return fresh;
    }
    return this.#active.turn() ?? this.#skipped.turn();
  }

  #ringOf(seat: RingNode<Member>): Ring<Member> {
    return seat.value.skipped === undefined ? this.#active : this.#skipped;
  }
}

/** Checks one seat more than there are tried endpoints, so at least one of them is untried. */
function untried(ring: Ring<Member>, tried: readonly BalancerEndpoint[]): Member | undefined {
  let seat = ring.first;
  for (let left = Math.min(ring.size, tried.length + 1); left > 0; left -= 1) {
    if (seat === undefined) return undefined;
    if (!tried.includes(seat.value)) {
      ring.advancePast(seat);
      return seat.value;
    }
    seat = seat.next;
  }
  return undefined;
}
