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

  join(node: RingNode<Member>): void {
    this.#ringOf(node).join(node);
  }

  leave(node: RingNode<Member>): void {
    this.#ringOf(node).leave(node);
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

  #ringOf(node: RingNode<Member>): Ring<Member> {
    return node.value.skipped === undefined ? this.#active : this.#skipped;
  }
}

/** Checks one node more than there are tried endpoints, so at least one of them is untried. */
function untried(ring: Ring<Member>, tried: readonly BalancerEndpoint[]): Member | undefined {
  let node = ring.first;
  for (let left = Math.min(ring.size, tried.length + 1); left > 0; left -= 1) {
    if (node === undefined) return undefined;
    if (!tried.includes(node.value)) {
      ring.advancePast(node);
      return node.value;
    }
    node = node.next;
  }
  return undefined;
}
