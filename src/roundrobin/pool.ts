import { LinkedList, type ListNode } from '../util/linked-list.ts';
import type { Member } from './member.ts';
import type { BalancerEndpoint } from './types.ts';

/**
 * The endpoints that may serve one kind of traffic of one address family, as two rotations: usable and skipped ones.
 * The second is used only while the first is empty. A turn moves an endpoint to the end.
 */
export class Pool {
  readonly #active = new LinkedList<Member>();
  readonly #skipped = new LinkedList<Member>();

  get size(): number {
    return this.#active.size + this.#skipped.size;
  }

  /** Whether every endpoint is being skipped. */
  get allSkipped(): boolean {
    return this.#active.size === 0;
  }

  /** Adds an endpoint to the end of its rotation. */
  join(member: Member): ListNode<Member> {
    return (member.skipped === undefined ? this.#active : this.#skipped).add(member);
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
    return turn(this.#active) ?? turn(this.#skipped);
  }
}

function turn(rotation: LinkedList<Member>): Member | undefined {
  const { first } = rotation;
  first?.moveLast();
  return first?.item;
}

/** Of one endpoint more than there are tried ones, at least one is untried. If all were tried, their order stays. */
function untried(
  rotation: LinkedList<Member>,
  tried: readonly BalancerEndpoint[],
): Member | undefined {
  for (let left = Math.min(rotation.size, tried.length + 1); left > 0; left -= 1) {
    const member = turn(rotation);
    if (member !== undefined && !tried.includes(member)) return member;
  }
  return undefined;
}
