import type { AffinitySpec, EndpointChanges, EndpointSpec, Traffic } from '../proxysocket/spec.ts';
import type { Clock } from '../util/clock.ts';
import type { Family } from '../util/family.ts';
import { listChanges } from '../util/compare.ts';
import { AffinityTable, type AffinityBudget, type AffinityLimit } from './affinity.ts';
import {
  endpointText,
  Member,
  type BalancerEndpoint,
  type Pick,
  type PickRequest,
} from './endpoint.ts';
import { Pool, SkipList } from './rotation.ts';

export interface RoundRobinOptions {
  readonly clock: Clock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random: () => number;
  readonly affinity: AffinitySpec;
  /** Clients that session affinity remembers. */
  readonly affinityLimit: AffinityLimit;
  readonly affinityBudget: AffinityBudget;
}

const TRAFFIC: readonly Traffic[] = ['internal', 'external', 'cluster'];

/** In place of pools that have never had a member: there are many service ports, most with one pool. */
const NONE = new Pool();

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
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #affinityLimit: AffinityLimit;
  readonly #affinityBudget: AffinityBudget;
  readonly #members = new Map<string, Member>();
  /** The last list, if nothing is listed twice; undefined: unknown. */
  #listed: readonly EndpointSpec[] | undefined = [];
  readonly #pools: Record<Traffic, Record<Family, Pool>> = {
    internal: { 4: NONE, 6: NONE },
    external: { 4: NONE, 6: NONE },
    cluster: { 4: NONE, 6: NONE },
  };
  readonly #skips = new SkipList();
  #affinity: AffinityTable | undefined;
  #failing = 0;

  constructor(options: RoundRobinOptions) {
    this.#clock = options.clock;
    this.#random = options.random;
    this.#affinityLimit = options.affinityLimit;
    this.#affinityBudget = options.affinityBudget;
    this.setAffinity(options.affinity);
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

  /**
   * Replaces the set of endpoints and returns the removed ones. The others keep their order. `admits` is called for
   * each new endpoint; those it refuses are left out. Objects of the previous list are not looked at again.
   */
  update(
    endpoints: readonly EndpointSpec[],
    admits: Admits = () => true,
  ): readonly BalancerEndpoint[] {
    const before = this.#listed ?? [];
    // Lists with neither the first nor the last object in common have none in common, most likely.
    const isOther = endpoints[0] !== before[0] && endpoints.at(-1) !== before.at(-1);
    const isNew = isOther || this.#listed === undefined;
    const { removed, added } = listChanges(isNew ? [] : before, endpoints);
    const gone = new Set(isNew ? this.#members.keys() : removed.map(endpointText));
    const set = byText(added);
    for (const text of set.keys()) {
      if (gone.delete(text) || !this.#members.has(text)) continue;
      // It is listed twice, and only one of the two is new.
      this.#listed = undefined;
      return this.update(endpoints, admits);
    }
    const left = this.#change(gone, set, admits);
    this.#listed = set.size === added.length ? endpoints : undefined;
    return left;
  }

  /** Changes a few endpoints of many, in time that does not depend on the others; returns the removed ones. */
  patch(
    { removed, set }: EndpointChanges,
    admits: Admits = () => true,
  ): readonly BalancerEndpoint[] {
    this.#listed = undefined;
    return this.#change(removed.map(endpointText), byText(set), admits);
  }

  #change(
    removed: Iterable<string>,
    set: ReadonlyMap<string, EndpointSpec>,
    admits: Admits,
  ): readonly BalancerEndpoint[] {
    const gone = [...removed].flatMap((text) => this.#members.get(text) ?? []);
    for (const member of gone) this.#remove(member);
    const added: Member[] = [];
    for (const [text, spec] of set) {
      const member = this.#members.get(text);
      if (member !== undefined) this.#allow(member, spec);
      else if (admits(spec)) added.push(new Member(text, spec));
    }
    for (const member of shuffle(added, this.#random)) {
      this.#members.set(member.text, member);
      this.#allow(member, set.get(member.text) ?? {});
    }
    this.#affinity?.clearStale(this.#clock.now());
    return gone;
  }

  /** A new timeout applies at once, including to known clients. Without affinity, all clients are forgotten. */
  setAffinity(affinity: AffinitySpec): void {
    if (affinity.kind === 'none') {
      this.#affinity?.clear();
      this.#affinity = undefined;
      this.#affinityLimit.onFreed?.(0);
      return;
    }
    const timeoutMs = affinity.timeoutSeconds * 1000;
    this.#affinity ??= new AffinityTable(this.#affinityLimit, timeoutMs, this.#affinityBudget);
    this.#affinity.setTimeout(timeoutMs);
  }

  /** The next endpoint for a client, or undefined if none is left. O(1) without `tried`. */
  pick(request: PickRequest): Pick | undefined {
    const { traffic, tried, previous } = request;
    const pool = this.#poolFor(traffic, request.family);
    const affinity = this.#affinity;
    if (this.#skips.size > 0) this.#unskipDue();
    const known = previous === undefined ? undefined : this.#members.get(previous);
    const kept = known !== undefined && isUsable(known, traffic, pool) ? known : undefined;
    if (affinity === undefined) return (kept ?? pool.next(tried))?.inTurn;

    // Only here: the client's address costs a system call.
    const { client } = request;
    const now = this.#clock.now();
    const bound = affinity.use(client, now);
    if (bound !== undefined && !tried.includes(bound) && isUsable(bound, traffic, pool)) {
      return bound.byAffinity;
    }
    const next = kept ?? pool.next(tried);
    if (next === undefined) return undefined;
    affinity.bind(client, next, now);
    return next.inTurn;
  }

  /** Whether there is an endpoint for this traffic, skipped or not. */
  serves(traffic: Traffic): boolean {
    const pools = this.#pools[traffic];
    return pools[4].size > 0 || pools[6].size > 0;
  }

  /**
   * A connection to the endpoint failed: it is skipped for a while, unless all are. Failures meanwhile belong to
   * earlier attempts, or to attempts without another endpoint, and do not extend that.
   */
  connectFailed(endpoint: BalancerEndpoint, cause: string): void {
    const member = this.#present(endpoint);
    if (member === undefined) return;
    const now = this.#clock.now();
    member.record.failed(now, cause);
    if (member.skipped !== undefined) return;
    if (member.failures === 0) this.#failing += 1;
    member.failures += 1;
    this.#reseat(member, this.#skips.add(member, now));
  }

  /** A connection to the endpoint succeeded: it is no longer skipped. `connectMs`: how long it took, if known. */
  connected(endpoint: BalancerEndpoint, connectMs?: number): void {
    const member = this.#present(endpoint);
    if (member === undefined) return;
    member.record.connected(this.#clock.now(), connectMs);
    if (member.failures === 0) return;
    this.#failing -= 1;
    member.failures = 0;
    if (member.skipped === undefined) return;
    this.#skips.remove(member.skipped);
    this.#reseat(member, undefined);
  }

  #poolFor(traffic: Traffic, family: Family): Pool {
    const pools = this.#pools[traffic];
    const own = pools[family];
    return own.size > 0 ? own : pools[family === 4 ? 6 : 4];
  }

  #present(endpoint: BalancerEndpoint): Member | undefined {
    return endpoint instanceof Member && !endpoint.gone ? endpoint : undefined;
  }

  #unskipDue(): void {
    const now = this.#clock.now();
    for (;;) {
      const member = this.#skips.takeDue(now);
      if (member === undefined) return;
      this.#reseat(member, undefined);
    }
  }

  /** Moves a member between the used and the skipped ones, to the end of the rotation. */
  #reseat(member: Member, skipped: Member['skipped']): void {
    member.skipped = skipped;
    for (const traffic of TRAFFIC) {
      const node = member.nodes[traffic];
      if (node === undefined) continue;
      node.remove();
      member.nodes[traffic] = this.#pools[traffic][member.family].join(member);
    }
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
        const pools = this.#pools[traffic];
        if (pools[member.family] === NONE) pools[member.family] = new Pool();
        member.nodes[traffic] = pools[member.family].join(member);
      }
    }
  }

  #remove(member: Member): void {
    this.#allow(member, {});
    if (member.skipped !== undefined) this.#skips.remove(member.skipped);
    member.skipped = undefined;
    if (member.failures > 0) this.#failing -= 1;
    member.gone = true;
    this.#members.delete(member.text);
  }
}

type Admits = (endpoint: EndpointSpec) => boolean;

/** One that is listed twice may be used for what either entry allows. */
function byText(endpoints: readonly EndpointSpec[]): ReadonlyMap<string, EndpointSpec> {
  const all = new Map<string, EndpointSpec>();
  for (const spec of endpoints) {
    const text = endpointText(spec);
    const same = all.get(text);
    const internal = spec.internal || same?.internal === true;
    const external = spec.external || same?.external === true;
    const cluster = spec.cluster === true || same?.cluster === true;
    all.set(text, same === undefined ? spec : { ...spec, internal, external, cluster });
  }
  return all;
}

function isUsable(member: Member, traffic: Traffic, pool: Pool): boolean {
  if (member.nodes[traffic] === undefined) return false;
  return member.skipped === undefined || pool.allSkipped;
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
