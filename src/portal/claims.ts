import type { Protocol } from '../proxysocket/spec.ts';
import { familyOf } from '../util/family.ts';

/** A place to listen that only one service port can have. */
export interface Claim {
  readonly protocol: Protocol;
  /** IP literal; `0.0.0.0` and `::` mean every address of that family. */
  readonly address: string;
  /** 1 to 65535. */
  readonly port: number;
}

/** A claim that is not met, and the service port that stands in its way. */
export interface WaitingClaim {
  readonly owner: string;
  readonly claim: Claim;
  readonly holder: string;
}

/** Text that tells places apart. */
export function claimKey(claim: Claim): string {
  return `${claim.protocol} ${claim.address} ${claim.port}`;
}

interface Waiting {
  readonly owner: string;
  readonly claim: Claim;
}

/** All claims that can be in each other's way: those of one protocol, family and port. */
interface Bucket {
  readonly key: string;
  /** The address that means all addresses. */
  readonly wildcard: string;
  /** Owner by address. */
  readonly holders: Map<string, string>;
  /** By owner and address. */
  readonly waiting: Map<string, Waiting>;
}

/** What an update has done to the buckets, and to whom. */
interface Round {
  readonly released: Set<Bucket>;
  readonly added: Map<Bucket, Waiting[]>;
  /** Owners that won or lost a place. */
  readonly changed: Set<string>;
}

/**
 * Who may listen where.
 *
 * A place has one holder, and the wildcard address is in the way of every single address with that
 * port: on Linux the second bind of the two fails. Whoever holds a place keeps it. A free place goes
 * to the first one by name that wants it, so the outcome does not depend on the order of arrival
 * within an update. An update costs what changes, not what there is.
 */
export class ClaimTable {
  readonly #buckets = new Map<string, Bucket>();
  readonly #claims = new Map<string, ReadonlyMap<string, Claim>>();
  /** Buckets in which somebody waits. */
  readonly #contested = new Set<Bucket>();

  /**
   * Replaces the claims of the owners in `set` and drops those of the owners in `remove`. What this
   * frees can be had by others in the same update. Returns the owners that won or lost a place.
   */
  update(
    set: ReadonlyMap<string, readonly Claim[]>,
    remove: Iterable<string>,
  ): ReadonlySet<string> {
    const round: Round = { released: new Set(), added: new Map(), changed: new Set() };
    for (const owner of remove) {
      if (!set.has(owner)) this.#replace(owner, [], round);
    }
    for (const [owner, claims] of set) this.#replace(owner, claims, round);

    for (const bucket of new Set([...round.released, ...round.added.keys()])) {
      // Without a release nobody who waited before can be better off than he was.
      const candidates = round.released.has(bucket)
        ? [...bucket.waiting.values()]
        : (round.added.get(bucket) ?? []);
      settle(bucket, candidates, round.changed);
      if (bucket.waiting.size > 0) this.#contested.add(bucket);
      else this.#contested.delete(bucket);
      if (bucket.holders.size === 0) this.#buckets.delete(bucket.key);
    }
    return round.changed;
  }

  /** Whether the owner has the place. */
  holds(owner: string, claim: Claim): boolean {
    return this.#buckets.get(bucketKey(claim))?.holders.get(claim.address) === owner;
  }

  /** Every claim that is not met. */
  waiting(): WaitingClaim[] {
    const all: WaitingClaim[] = [];
    for (const bucket of this.#contested) {
      for (const { owner, claim } of bucket.waiting.values()) {
        const holder = inTheWay(bucket, claim.address);
        if (holder !== undefined) all.push({ owner, claim, holder });
      }
    }
    return all;
  }

  #replace(owner: string, claims: readonly Claim[], round: Round): void {
    const before = this.#claims.get(owner);
    const after = new Map(claims.map((claim) => [claimKey(claim), claim]));
    if (after.size > 0) this.#claims.set(owner, after);
    else this.#claims.delete(owner);

    for (const [key, claim] of before ?? []) {
      if (!after.has(key)) this.#drop(owner, claim, round);
    }
    for (const [key, claim] of after) {
      if (before?.has(key) === true) continue;
      const bucket = this.#bucketOf(claim);
      const waiting = { owner, claim };
      bucket.waiting.set(waitingKey(owner, claim.address), waiting);
      const added = round.added.get(bucket);
      if (added === undefined) round.added.set(bucket, [waiting]);
      else added.push(waiting);
    }
  }

  #drop(owner: string, claim: Claim, round: Round): void {
    const bucket = this.#bucketOf(claim);
    if (bucket.holders.get(claim.address) === owner) {
      bucket.holders.delete(claim.address);
      round.changed.add(owner);
    } else {
      bucket.waiting.delete(waitingKey(owner, claim.address));
    }
    round.released.add(bucket);
  }

  #bucketOf(claim: Claim): Bucket {
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

function bucketKey({ protocol, address, port }: Claim): string {
  return `${protocol} ${familyOf(address)} ${port}`;
}

function waitingKey(owner: string, address: string): string {
  return `${owner} ${address}`;
}

/** Gives the free places of a bucket to candidates that wait for them, in order of their names. */
function settle(bucket: Bucket, candidates: Waiting[], changed: Set<string>): void {
  candidates.sort((a, b) => compare(a.owner, b.owner) || compare(a.claim.address, b.claim.address));
  for (const { owner, claim } of candidates) {
    if (inTheWay(bucket, claim.address) !== undefined) continue;
    bucket.waiting.delete(waitingKey(owner, claim.address));
    bucket.holders.set(claim.address, owner);
    changed.add(owner);
  }
}

/** The service port that keeps others from an address, if one does. */
function inTheWay(bucket: Bucket, address: string): string | undefined {
  const { holders, wildcard } = bucket;
  if (holders.size === 0) return undefined;
  if (address !== wildcard) return holders.get(address) ?? holders.get(wildcard);
  return holders.get(wildcard) ?? holders.values().next().value;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
