import { familyOf } from '../util/family.ts';
import type { PortalProblem, PortalSpec } from './portal.ts';

/** An address and port that only one service port can have, for one of its portals. */
export interface Claim {
  readonly portal: PortalSpec;
  /** IP literal; `0.0.0.0` and `::` mean every address of that family. Node ports of rules: `node`. */
  readonly address: string;
  /** 1 to 65535. */
  readonly port: number;
}

/** A text that identifies the claim. */
export function claimKey({ portal, address, port }: Claim): string {
  return `${portal.protocol} ${address} ${port}`;
}

interface Waiting<C extends Claim> {
  readonly owner: string;
  readonly claim: C;
}

/** All claims that can conflict: those of one protocol, family and port. */
interface Bucket<C extends Claim> {
  readonly key: string;
  /** The address that means all addresses. */
  readonly wildcard: string;
  /** Owner by address. */
  readonly holders: Map<string, string>;
  /** Unmet claims, by address and owner. */
  readonly waiting: Map<string, Map<string, C>>;
}

/** The changes of an update to the buckets, and their owners. */
interface Round<C extends Claim> {
  /** Addresses that became free. */
  readonly released: Map<Bucket<C>, Set<string>>;
  readonly added: Map<Bucket<C>, Waiting<C>[]>;
  /** Owners that gained or lost a claim. */
  readonly changed: Set<string>;
}

/**
 * The owner of each address and port.
 *
 * The wildcard address conflicts with every address with the same port: on Linux the second bind fails. A holder
 * keeps its claim. A free address goes to the first waiting service port by name. An update costs as much as its
 * changes.
 */
export class ClaimTable<C extends Claim> {
  readonly #buckets = new Map<string, Bucket<C>>();
  readonly #claims = new Map<string, ReadonlyMap<string, C>>();
  /** Buckets with unmet claims. */
  readonly #contested = new Set<Bucket<C>>();
  /** Number of unmet claims. */
  #unmet = 0;

  /**
   * Replaces the claims of owners in `set` and drops those in `remove`; others get released addresses in the same
   * update. Of equal claims of one owner, the first counts. Returns the owners that won or lost a claim.
   */
  update(set: ReadonlyMap<string, readonly C[]>, remove: Iterable<string>): ReadonlySet<string> {
    const round: Round<C> = { released: new Map(), added: new Map(), changed: new Set() };
    for (const owner of remove) if (!set.has(owner)) this.#replace(owner, [], round);
    for (const [owner, claims] of set) this.#replace(owner, claims, round);

    for (const bucket of new Set([...round.released.keys(), ...round.added.keys()])) {
      const released = round.released.get(bucket) ?? [];
      const candidates = [...(round.added.get(bucket) ?? []), ...waitingFor(bucket, released)];
      this.#settle(bucket, candidates, round.changed);
      if (bucket.waiting.size > 0) this.#contested.add(bucket);
      else this.#contested.delete(bucket);
      if (bucket.holders.size === 0) this.#buckets.delete(bucket.key);
    }
    return round.changed;
  }

  /** The met claims of an owner. */
  held(owner: string): C[] {
    return [...(this.#claims.get(owner)?.values() ?? [])].filter(
      (claim) => this.#buckets.get(bucketKey(claim))?.holders.get(claim.address) === owner,
    );
  }

  /** Describes one unmet claim, the same one while it lasts, with the number of all; undefined: all are met. */
  problem(text: (claim: C) => string): PortalProblem | undefined {
    const [bucket] = this.#contested;
    const [[address, owners] = []] = bucket?.waiting ?? [];
    const [[owner, claim] = []] = owners ?? [];
    if (bucket === undefined || owner === undefined || claim === undefined) return undefined;
    const holder = holderOf(bucket, address ?? '');
    const why =
      holder === owner
        ? 'another of its own addresses is in the way'
        : `${holder} has it; this service port gets it when that one releases it`;
    return {
      servicePort: owner,
      portal: claim.portal,
      code: 'KPNG_PORTAL_CONFLICT',
      message: `${owner} cannot have ${text(claim)}: ${why}`,
      count: this.#unmet,
    };
  }

  #replace(owner: string, claims: readonly C[], round: Round<C>): void {
    const before = this.#claims.get(owner);
    const after = new Map<string, C>();
    for (const claim of claims) {
      const key = claimKey(claim);
      if (!after.has(key)) after.set(key, claim);
    }
    if (after.size > 0) this.#claims.set(owner, after);
    else this.#claims.delete(owner);

    for (const [key, claim] of before ?? []) {
      if (!after.has(key)) this.#drop(owner, claim, round);
    }
    for (const [key, claim] of after) {
      if (before?.has(key) === true) continue;
      const bucket = this.#bucketOf(claim);
      this.#wait(bucket, owner, claim);
      const added = round.added.get(bucket);
      if (added === undefined) round.added.set(bucket, [{ owner, claim }]);
      else added.push({ owner, claim });
    }
  }

  #drop(owner: string, claim: C, round: Round<C>): void {
    const bucket = this.#bucketOf(claim);
    const released = round.released.get(bucket) ?? new Set();
    round.released.set(bucket, released);
    if (bucket.holders.get(claim.address) === owner) {
      bucket.holders.delete(claim.address);
      released.add(claim.address);
      round.changed.add(owner);
    } else {
      this.#stopWaiting(bucket, owner, claim);
    }
  }

  #wait(bucket: Bucket<C>, owner: string, claim: C): void {
    const owners = bucket.waiting.get(claim.address);
    if (owners === undefined) bucket.waiting.set(claim.address, new Map([[owner, claim]]));
    else owners.set(owner, claim);
    this.#unmet += 1;
  }

  #stopWaiting(bucket: Bucket<C>, owner: string, { address }: C): void {
    const owners = bucket.waiting.get(address);
    if (owners?.delete(owner) !== true) return;
    if (owners.size === 0) bucket.waiting.delete(address);
    this.#unmet -= 1;
  }

  /** Assigns free claims of a bucket to waiting candidates, by name. */
  #settle(bucket: Bucket<C>, candidates: Waiting<C>[], changed: Set<string>): void {
    candidates.sort(
      (a, b) => compare(a.owner, b.owner) || compare(a.claim.address, b.claim.address),
    );
    for (const { owner, claim } of candidates) {
      if (holderOf(bucket, claim.address) !== undefined) continue;
      this.#stopWaiting(bucket, owner, claim);
      bucket.holders.set(claim.address, owner);
      changed.add(owner);
    }
  }

  #bucketOf(claim: C): Bucket<C> {
    const key = bucketKey(claim);
    let bucket = this.#buckets.get(key);
    if (bucket === undefined) {
      const wildcard = familyOf(claim.address) === 6 ? '::' : '0.0.0.0';
      bucket = { key, wildcard, holders: new Map(), waiting: new Map() };
      this.#buckets.set(key, bucket);
    }
    return bucket;
  }
}

function bucketKey({ portal, address, port }: Claim): string {
  return `${portal.protocol} ${familyOf(address)} ${port}`;
}

/** Waiting claims that may be met now that these addresses are free: the others have the same holders. */
function* waitingFor<C extends Claim>(
  { waiting, wildcard, holders }: Bucket<C>,
  released: Iterable<string>,
): Generator<Waiting<C>> {
  const free = new Set(released);
  if (free.size === 0) return;
  // Every single address waits for the wildcard; the wildcard waits for all of them.
  const addresses = free.has(wildcard) ? waiting.keys() : free;
  const isLast = holders.size === 0 && !free.has(wildcard);
  for (const address of isLast ? [wildcard, ...addresses] : addresses) {
    for (const [owner, claim] of waiting.get(address) ?? []) yield { owner, claim };
  }
}

/** The service port that holds an address, if any. */
function holderOf<C extends Claim>(
  { holders, wildcard }: Bucket<C>,
  address: string,
): string | undefined {
  if (address !== wildcard) return holders.get(address) ?? holders.get(wildcard);
  return holders.get(wildcard) ?? holders.values().next().value;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
