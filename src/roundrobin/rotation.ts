import { LinkedList, type ListNode } from '../util/linked-list.ts';
import type { BalancerEndpoint, Member, SkipTicket } from './endpoint.ts';

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

  get allSkipped(): boolean {
    return this.#active.size === 0;
  }

  join(member: Member): ListNode<Member> {
    return (member.skipped === undefined ? this.#active : this.#skipped).add(member);
  }

  /** The next one: untried and not skipped, else untried, else any. A tried one that is passed over loses its turn. */
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

/** How long an endpoint is skipped after its first, second, ... failure in a row. Milliseconds. */
export const SKIP_MS = [1000, 2000, 4000, 8000, 16_000, 30_000] as const;

/** The skipped endpoints with their deadlines, in a queue per step: all of one step are skipped for the same time. */
export class SkipList {
  /** Made when needed: most service ports never have one. */
  readonly #queues: (LinkedList<SkipTicket['item']> | undefined)[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(member: Member, now: number): SkipTicket {
    const step = Math.min(member.failures, SKIP_MS.length) - 1;
    const until = now + (SKIP_MS[step] ?? SKIP_MS[0]);
    this.#size += 1;
    return (this.#queues[step] ??= new LinkedList()).add({ member, until });
  }

  remove(ticket: SkipTicket): void {
    ticket.remove();
    this.#size -= 1;
  }

  /** Removes one endpoint whose deadline has passed, if any. */
  takeDue(now: number): Member | undefined {
    for (const queue of this.#queues) {
      const ticket = queue?.first;
      if (ticket === undefined || ticket.item.until > now) continue;
      this.remove(ticket);
      return ticket.item.member;
    }
    return undefined;
  }
}
