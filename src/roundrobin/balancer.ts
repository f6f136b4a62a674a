import type { AffinitySpec, EndpointSpec, Traffic } from '../proxysocket/spec.ts';
import type { Clock } from '../util/clock.ts';
import type { Family } from '../util/family.ts';
import { LinkedList } from '../util/linked-list.ts';
import { AffinityTable, type AffinityBudget, type AffinityLimit } from './affinity.ts';
import {
  endpointText,
  Member,
  type BalancerEndpoint,
  type Pick,
  type PickRequest,
} from './endpoint.ts';

export interface RoundRobinOptions {
  readonly clock: Clock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random: () => number;
  /** Clients that session affinity remembers. */
  readonly affinityLimit: AffinityLimit;
  readonly affinityBudget: AffinityBudget;
}

const TRAFFIC: readonly Traffic[] = ['internal', 'external', 'cluster'];

/** How long an endpoint is skipped after its first failure; doubled by each one in a row, up to the longest time. */
const SKIP_MS = 1000;
const LONGEST_SKIP_MS = 30_000;

const NONE_TRIED: readonly BalancerEndpoint[] = [];

/** Endpoints that may serve one kind of traffic of one address family; a turn moves one to the end. */
type Rotation = LinkedList<Member>;

/** In place of rotations that have never had a member: there are many service ports, most with one rotation. */
const NONE: Rotation = new LinkedList();

/**
 * The next one: untried and not skipped, else untried, else any. One that is passed over loses its turn; if all are,
 * their order stays.
 */
function next(
  rotation: Rotation,
  tried: readonly BalancerEndpoint[],
  now: number,
): Member | undefined {
  return (
    turn(rotation, tried, now) ??
    turn(rotation, tried, Infinity) ??
    turn(rotation, NONE_TRIED, Infinity)
  );
}

function turn(
  rotation: Rotation,
  tried: readonly BalancerEndpoint[],
  now: number,
): Member | undefined {
  for (let left = rotation.size; left > 0; left -= 1) {
    const { first } = rotation;
    first?.moveLast();
    if (first !== undefined && first.item.skippedUntil <= now && !tried.includes(first.item))
      return first.item;
  }
  return undefined;
}

/**
 * Round robin over the endpoints of one service port, with session affinity by client address.
 *
 * - New endpoints are shuffled among themselves and join at the end of the rotation; the others
 *   keep their order and the turn stays where it is. (kube-proxy's userspace mode reshuffles all
 *   at every change.)
 * - An endpoint to which a connection failed is skipped for 1 s, then 2 s, up to 30 s, for as long
 *   as there is another one to use.
 * - A client that is bound to an endpoint gets it while it is present, allowed for the traffic, not
 *   tried without success and not skipped (unless all are); otherwise it is bound to the next one.
 * - An endpoint that is allowed for no traffic counts as present, so what uses it may live on, but
 *   it is never picked.
 */
export class RoundRobinBalancer {
  readonly #options: RoundRobinOptions;
  readonly #members = new Map<string, Member>();
  readonly #rotations: Record<Traffic, Record<Family, Rotation>> = {
    internal: { 4: NONE, 6: NONE },
    external: { 4: NONE, 6: NONE },
    cluster: { 4: NONE, 6: NONE },
  };
  #affinity: AffinityTable | undefined;
  #failing = 0;

  constructor(options: RoundRobinOptions) {
    this.#options = options;
  }

  /** Number of endpoints, usable or not. */
  get size(): number {
    return this.#members.size;
  }

  get failing(): number {
    return this.#failing;
  }

  endpoints(): readonly BalancerEndpoint[] {
    return [...this.#members.values()];
  }

  /** Replaces the set of endpoints, each listed once; returns the removed ones. The others keep their order. */
  update(endpoints: readonly EndpointSpec[]): readonly BalancerEndpoint[] {
    const set = new Map(endpoints.map((spec) => [endpointText(spec), spec]));
    const gone = [...this.#members.values()].filter(({ text }) => !set.has(text));
    for (const member of gone) this.#remove(member);
    const added = [...set].filter(([text]) => !this.#members.has(text));
    for (const [text, spec] of shuffle(added, this.#options.random))
      this.#members.set(text, new Member(text, spec));
    for (const member of this.#members.values()) this.#allow(member, set.get(member.text) ?? {});
    this.#affinity?.clearStale(this.#options.clock.now());
    return gone;
  }

  /** A new timeout applies at once, including to known clients. Without affinity, all clients are forgotten. */
  setAffinity(affinity: AffinitySpec): void {
    const { affinityLimit, affinityBudget } = this.#options;
    if (affinity.kind === 'none') {
      this.#affinity?.clear();
      this.#affinity = undefined;
      return;
    }
    this.#affinity ??= new AffinityTable(affinityLimit, affinityBudget);
    this.#affinity.timeoutMs = affinity.timeoutSeconds * 1000;
  }

  /** The next endpoint for a client, or undefined if none is left. O(1) but for skipped and tried endpoints. */
  pick(request: PickRequest): Pick | undefined {
    const { traffic, tried, previous } = request;
    const rotation = this.#rotationFor(traffic, request.family);
    const affinity = this.#affinity;
    // Without failing endpoints, none is skipped.
    const now = this.#failing > 0 || affinity !== undefined ? this.#options.clock.now() : 0;
    const known = previous === undefined ? undefined : this.#members.get(previous);
    const kept = known !== undefined && isUsable(known, traffic, rotation, now) ? known : undefined;
    if (affinity === undefined) return (kept ?? next(rotation, tried, now))?.inTurn;

    // Only here: the client's address costs a system call.
    const { client } = request;
    const bound = affinity.use(client, now);
    if (bound !== undefined && !tried.includes(bound) && isUsable(bound, traffic, rotation, now)) {
      return bound.byAffinity;
    }
    const chosen = kept ?? next(rotation, tried, now);
    if (chosen === undefined) return undefined;
    affinity.bind(client, chosen, now);
    return chosen.inTurn;
  }

  /** Whether there is an endpoint for this traffic, skipped or not. */
  serves(traffic: Traffic): boolean {
    const rotations = this.#rotations[traffic];
    return rotations[4].size > 0 || rotations[6].size > 0;
  }

  /**
   * A connection to the endpoint failed: it is skipped for a while, unless all are. Failures meanwhile belong to
   * earlier attempts, or to attempts without another endpoint, and do not extend that.
   */
  connectFailed(endpoint: BalancerEndpoint, cause: string): void {
    const member = this.#present(endpoint);
    if (member === undefined) return;
    const now = this.#options.clock.now();
    member.record.failed(now, cause);
    if (member.skippedUntil > now) return;
    if (member.failures === 0) this.#failing += 1;
    member.skippedUntil = now + Math.min(SKIP_MS * 2 ** member.failures, LONGEST_SKIP_MS);
    member.failures += 1;
    for (const traffic of TRAFFIC) member.nodes[traffic]?.moveLast();
  }

  /** A connection to the endpoint succeeded: it is no longer skipped. `connectMs`: how long it took, if known. */
  connected(endpoint: BalancerEndpoint, connectMs?: number): void {
    const member = this.#present(endpoint);
    if (member === undefined) return;
    member.record.connected(this.#options.clock.now(), connectMs);
    if (member.failures === 0) return;
    this.#failing -= 1;
    member.failures = 0;
    member.skippedUntil = 0;
  }

  #rotationFor(traffic: Traffic, family: Family): Rotation {
    const rotations = this.#rotations[traffic];
    const own = rotations[family];
    return own.size > 0 ? own : rotations[family === 4 ? 6 : 4];
  }

  #present(endpoint: BalancerEndpoint): Member | undefined {
    return endpoint instanceof Member && !endpoint.gone ? endpoint : undefined;
  }

  /** Assigns a member a node for each kind of traffic that it may serve, and removes the others. */
  #allow(member: Member, allowed: Readonly<Partial<Record<Traffic, boolean>>>): void {
    for (const traffic of TRAFFIC) {
      const node = member.nodes[traffic];
      if ((allowed[traffic] === true) === (node !== undefined)) continue;
      if (node !== undefined) {
        node.remove();
        member.nodes[traffic] = undefined;
      } else {
        const rotations = this.#rotations[traffic];
        if (rotations[member.family] === NONE) rotations[member.family] = new LinkedList();
        member.nodes[traffic] = rotations[member.family].add(member);
      }
    }
  }

  #remove(member: Member): void {
    this.#allow(member, {});
    if (member.failures > 0) this.#failing -= 1;
    member.gone = true;
    this.#members.delete(member.text);
  }
}

function isUsable(member: Member, traffic: Traffic, rotation: Rotation, now: number): boolean {
  if (member.nodes[traffic] === undefined) return false;
  return member.skippedUntil <= now || [...rotation].every((each) => each.skippedUntil > now);
}

function shuffle<T>(items: T[], random: () => number): T[] {
  for (let last = items.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    const held = items[last] as T;
    items[last] = items[other] as T;
    items[other] = held;
  }
  return items;
}
