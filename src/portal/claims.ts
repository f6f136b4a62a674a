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

/** A text that identifies what is claimed. */
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
  /** By owner and address. */
  readonly waiting: Map<string, Waiting<C>>;
}

/** What an update has done to the buckets, and to whom. */
interface Round<C extends Claim> {
  readonly released: Set<Bucket<C>>;
  readonly added: Map<Bucket<C>, Waiting<C>[]>;
  /** Owners that have won or lost a claim. */
  readonly changed: Set<string>;
}

/**
 * Which service port may have which address.
 *
 * An address and port has one holder, and the wildcard address conflicts with every single address with that
 * port: on Linux the second bind of the two fails. The holder keeps it. What is free goes to the first
 * service port by name that wants it, so the outcome does not depend on the order of arrival
 * within an update. An update costs what changes, not what there is.
 */
export class ClaimTable<C extends Claim> {
  readonly #buckets = new Map<string, Bucket<C>>();
  readonly #claims = new Map<string, ReadonlyMap<string, C>>();
  /** Buckets with claims that are not met. */
  readonly #contested = new Set<Bucket<C>>();

  /**
   * Replaces the claims of the owners in `set` and drops those of the owners in `remove`. What this
   * frees can be had by others in the same update. Of claims of one owner to the same, the first counts. Returns
   * the owners that have won or lost a claim.
   */
  update(set: ReadonlyMap<string, readonly C[]>, remove: Iterable<string>): ReadonlySet<string> {
    const round: Round<C> = { released: new Set(), added: new Map(), changed: new Set() };
    for (const owner of remove) if (!set.has(owner)) this.#replace(owner, [], round);
    for (const [owner, claims] of set) this.#replace(owner, claims, round);

    for (const bucket of new Set([...round.released, ...round.added.keys()])) {
      // Without a release, those that waited before cannot be better off.
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

  /** The claims of an owner that are met. */
  held(owner: string): C[] {
    return [...(this.#claims.get(owner)?.values() ?? [])].filter(
      (claim) => this.#buckets.get(bucketKey(claim))?.holders.get(claim.address) === owner,
    );
  }

  /** One for each claim that is not met. `text` names what is claimed. */
  problems(text: (claim: C) => string): PortalProblem[] {
    const all: PortalProblem[] = [];
    for (const bucket of this.#contested) {
      for (const { owner, claim } of bucket.waiting.values()) {
        const holder = holderOf(bucket, claim.address);
        if (holder === undefined) continue;
        const why =
          holder === owner
            ? 'another of its own addresses is in the way'
            : `${holder} has it, and it changes hands when that one gives it up`;
        all.push({
          servicePort: owner,
          portal: claim.portal,
          code: 'KPNG_PORTAL_CONFLICT',
          message: `${owner} cannot have ${text(claim)}: ${why}`,
        });
      }
    }
    return all;
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
      const waiting = { owner, claim };
      bucket.waiting.set(waitingKey(owner, claim.address), waiting);
      const added = round.added.get(bucket);
      if (added === undefined) round.added.set(bucket, [waiting]);
      else added.push(waiting);
    }
  }

  #drop(owner: string, claim: C, round: Round<C>): void {
    const bucket = this.#bucketOf(claim);
    if (bucket.holders.get(claim.address) === owner) {
      bucket.holders.delete(claim.address);
      round.changed.add(owner);
    } else {
      bucket.waiting.delete(waitingKey(owner, claim.address));
    }
    round.released.add(bucket);
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

function waitingKey(owner: string, address: string): string {
  return `${owner} ${address}`;
}

/** Gives what is free in a bucket to candidates that wait for it, in order of their names. */
function settle<C extends Claim>(
  bucket: Bucket<C>,
  candidates: Waiting<C>[],
  changed: Set<string>,
): void {
  candidates.sort((a, b) => compare(a.owner, b.owner) || compare(a.claim.address, b.claim.address));
  for (const { owner, claim } of candidates) {
    if (holderOf(bucket, claim.address) !== undefined) continue;
    bucket.waiting.delete(waitingKey(owner, claim.address));
    bucket.holders.set(claim.address, owner);
    changed.add(owner);
  }
}

/** The service port that keeps others from an address, if one does. */
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
