import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import type { EndpointSnapshot } from '../inspect.ts';
import { LinkedList, ListNode } from '../../util/linked-list.ts';

type EndpointUse = Pick<EndpointSnapshot, 'active' | 'bytesIn' | 'bytesOut'>;

/** Finds the connections or sessions of an endpoint, or of another object. Adding and removing take constant time. */
export class EndpointIndex<
  T extends Omit<EndpointUse, 'active'>,
  K extends object = BalancerEndpoint,
> {
  readonly #all = new LinkedList<T>();
  /** Weak, so entries need no removal when the last connection of an endpoint ends. */
  readonly #byEndpoint = new WeakMap<K, LinkedList<T>>();

  get size(): number {
    return this.#all.size;
  }

  add(endpoint: K, item: T): IndexEntry {
    let list = this.#byEndpoint.get(endpoint);
    if (list === undefined) this.#byEndpoint.set(endpoint, (list = new LinkedList()));
    const entry = new IndexEntry(item, list.add(item));
    this.#all.append(entry);
    return entry;
  }

  /** The current connections of an endpoint; they may change during the iteration. */
  of(endpoint: K): readonly T[] {
    return [...(this.#byEndpoint.get(endpoint) ?? [])];
  }

  useOf(endpoint: K): EndpointUse {
    const list = this.#byEndpoint.get(endpoint);
    let [bytesIn, bytesOut] = [0, 0];
    for (const item of list ?? []) {
      bytesIn += item.bytesIn;
      bytesOut += item.bytesOut;
    }
    return { active: list?.size ?? 0, bytesIn, bytesOut };
  }

  /** The connections, oldest first. Do not change the index during the iteration. */
  [Symbol.iterator](): Iterator<T> {
    return this.#all[Symbol.iterator]();
  }
}

/** An endpoint with its record and its open connections. `now`: by the clock of its balancer. */
export function endpointSnapshot(
  servicePort: string,
  { text, recorded }: Pick<BalancerEndpoint, 'text'> & Partial<BalancerEndpoint>,
  now: number,
  { active, bytesIn, bytesOut }: EndpointUse = { active: 0, bytesIn: 0, bytesOut: 0 },
): EndpointSnapshot {
  const { connectMs, connectedAt, failingSince, lastError } = recorded ?? {};
  const ago = (at: number | undefined) => (at === undefined ? undefined : now - at);
  return {
    servicePort,
    endpoint: text,
    active,
    connections: recorded?.connections ?? 0,
    errors: recorded?.errors ?? 0,
    connectMs,
    bytesIn: bytesIn + (recorded?.bytesIn ?? 0),
    bytesOut: bytesOut + (recorded?.bytesOut ?? 0),
    failing: failingSince !== undefined,
    failingMs: ago(failingSince),
    connectedAgoMs: ago(connectedAt),
    lastError: lastError && { cause: lastError.cause, agoMs: now - lastError.at },
  };
}

export class IndexEntry<T = unknown> extends ListNode<T> {
  readonly #inEndpoint: ListNode<T>;

  constructor(item: T, inEndpoint: ListNode<T>) {
    super(item);
    this.#inEndpoint = inEndpoint;
  }

  override remove(): void {
    super.remove();
    this.#inEndpoint.remove();
  }
}
