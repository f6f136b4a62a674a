import type { Protocol } from '../proxysocket/spec.ts';
import { familyOf } from '../util/family.ts';
import { portalText, type PortalProblem } from './portal.ts';

/** An address and port that only one service port can have. */
export interface Claim {
  readonly protocol: Protocol;
  /**
   * IP literal; `0.0.0.0` and `::` mean every address of that family. Undefined: the node ports of rules, which conflict
   * only with each other.
   */
  readonly address: string | undefined;
  /** 1 to 65535. */
  readonly port: number;
}

interface Candidate<C extends Claim> {
  readonly owner: string;
  readonly claim: C;
}

/** All claims that can conflict: those of one protocol, family and port. */
interface Bucket<C extends Claim> {
  readonly key: number;
  /** The address that means all addresses. */
  readonly wildcard: string;
  /** Owner by address. */
  readonly holders: Map<string, string>;
  /** Unmet claims, by address and owner. */
  readonly waiting: Map<string, Map<string, C>>;
}

interface BucketChange<C extends Claim> {
  readonly released: Set<string>;
  readonly added: Candidate<C>[];
}

/**
 * The owner of each address and port.
 *
 * The wildcard address conflicts with every address with the same port: on Linux the second bind fails. A holder
 * keeps its claim. A free address goes to the first waiting service port by name. An update costs as much as its
 * changes.
 */
export class ClaimTable<C extends Claim> {
  readonly #buckets = new Map<number, Bucket<C>>();
  readonly #claims = new Map<string, readonly C[]>();
  readonly #contested = new Set<Bucket<C>>();
  #unmet = 0;

  /**
   * Replaces the claims of owners in `set` and drops those in `remove`; others get released addresses in the same
   * update. Of equal claims of one owner, the first counts. Returns the owners that won a claim.
   */
  update(set: ReadonlyMap<string, readonly C[]>, remove: Iterable<string>): ReadonlySet<string> {
    const changes = new Map<Bucket<C>, BucketChange<C>>();
    const changed = new Set<string>();
    for (const owner of remove) if (!set.has(owner)) this.#replace(owner, [], changes);
    for (const [owner, claims] of set) this.#replace(owner, claims, changes);
    for (const [bucket, { released, added }] of changes) {
      for (const each of waitingFor(bucket, released)) added.push(each);
      this.#settle(bucket, added, changed);
      if (bucket.waiting.size > 0) this.#contested.add(bucket);
      else this.#contested.delete(bucket);
      if (bucket.holders.size === 0) this.#buckets.delete(bucket.key);
    }
    return changed;
  }

  held(owner: string): readonly C[] {
    const claims = this.#claims.get(owner) ?? [];
    const isHeld = (claim: C): boolean =>
      this.#buckets.get(bucketKey(claim))?.holders.get(addressOf(claim)) === owner;
    return claims.every(isHeld) ? claims : claims.filter(isHeld);
  }

  /** Describes one unmet claim, the same one while it lasts, with the number of all; undefined: all are met. */
  problem(): PortalProblem | undefined {
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
      code: 'KPNG_PORTAL_CONFLICT',
      message: `${owner} cannot have ${portalText(claim)}: ${why}`,
      count: this.#unmet,
    };
  }

  #replace(owner: string, claims: readonly C[], changes: Map<Bucket<C>, BucketChange<C>>): void {
    const before = this.#claims.get(owner) ?? [];
    const after = unique(claims);
    if (after.length > 0) this.#claims.set(owner, after);
    else this.#claims.delete(owner);
    for (const claim of without(before, after)) {
      const bucket = this.#bucketOf(claim);
      const address = addressOf(claim);
      const { released } = changeOf(changes, bucket);
      if (bucket.holders.get(address) === owner) {
        bucket.holders.delete(address);
        released.add(address);
      } else this.#stopWaiting(bucket, owner, address);
    }
    for (const claim of without(after, before)) {
      changeOf(changes, this.#bucketOf(claim)).added.push({ owner, claim });
    }
  }

  /** Assigns free claims of a bucket to candidates, by name; the others wait. */
  #settle(bucket: Bucket<C>, candidates: Candidate<C>[], changed: Set<string>): void {
    const addresses = new Set(candidates.map(({ claim }) => addressOf(claim)));
    // Otherwise the order does not matter.
    if (addresses.size < candidates.length || addresses.has(bucket.wildcard)) {
      candidates.sort(
        (a, b) =>
          compare(a.owner, b.owner) || compare(a.claim.address ?? '', b.claim.address ?? ''),
      );
    }
    for (const { owner, claim } of candidates) {
      const address = addressOf(claim);
      if (holderOf(bucket, address) === undefined) {
        this.#stopWaiting(bucket, owner, address);
        bucket.holders.set(address, owner);
        changed.add(owner);
      } else this.#wait(bucket, owner, claim);
    }
  }

  #wait(bucket: Bucket<C>, owner: string, claim: C): void {
    const address = addressOf(claim);
    const owners = bucket.waiting.get(address) ?? new Map<string, C>();
    bucket.waiting.set(address, owners);
    if (!owners.has(owner)) this.#unmet += 1;
    owners.set(owner, claim);
  }

  #stopWaiting(bucket: Bucket<C>, owner: string, address: string): void {
    const owners = bucket.waiting.get(address);
    if (owners?.delete(owner) !== true) return;
    if (owners.size === 0) bucket.waiting.delete(address);
    this.#unmet -= 1;
  }

  #bucketOf(claim: C): Bucket<C> {
    const key = bucketKey(claim);
    let bucket = this.#buckets.get(key);
    if (bucket === undefined) {
      const wildcard = familyOf(addressOf(claim)) === 6 ? '::' : '0.0.0.0';
      bucket = { key, wildcard, holders: new Map(), waiting: new Map() };
      this.#buckets.set(key, bucket);
    }
    return bucket;
  }
}

function unique<C extends Claim>(claims: readonly C[]): readonly C[] {
  if (claims.length < 2) return claims;
  const byKey = new Map<string, C>();
  for (const claim of claims) {
    const key = claimKey(claim);
    if (!byKey.has(key)) byKey.set(key, claim);
  }
  return byKey.size === claims.length ? claims : [...byKey.values()];
}

function without<C extends Claim>(claims: readonly C[], others: readonly C[]): readonly C[] {
  if (claims.length === 0 || others.length === 0) return claims;
  const keys = new Set(others.map(claimKey));
  return claims.filter((claim) => !keys.has(claimKey(claim)));
}

function claimKey(claim: Claim): string {
  return `${claim.protocol} ${addressOf(claim)} ${claim.port}`;
}

function addressOf({ address }: Claim): string {
  return address ?? 'node';
}

function bucketKey(claim: Claim): number {
  const family = familyOf(addressOf(claim)) === 6 ? 1 : 0;
  return claim.port * 4 + family * 2 + (claim.protocol === 'TCP' ? 1 : 0);
}

function changeOf<C extends Claim>(
  changes: Map<Bucket<C>, BucketChange<C>>,
  bucket: Bucket<C>,
): BucketChange<C> {
  let change = changes.get(bucket);
  if (change === undefined) changes.set(bucket, (change = { released: new Set(), added: [] }));
  return change;
}

/** Waiting claims that may be met now that these addresses are free: the others have the same holders. */
function* waitingFor<C extends Claim>(
  { waiting, wildcard, holders }: Bucket<C>,
  released: ReadonlySet<string>,
): Generator<Candidate<C>> {
  if (released.size === 0) return;
  // Every single address waits for the wildcard; the wildcard waits for all of them.
  const addresses = released.has(wildcard) ? waiting.keys() : released;
  const isLast = holders.size === 0 && !released.has(wildcard);
  for (const address of isLast ? [wildcard, ...addresses] : addresses) {
    for (const [owner, claim] of waiting.get(address) ?? []) yield { owner, claim };
  }
}

function holderOf<C extends Claim>(
  { holders, wildcard }: Bucket<C>,
  address: string,
): string | undefined {
  if (address !== wildcard) return holders.get(address) ?? holders.get(wildcard);
  return holders.get(wildcard) ?? holders.values().next().value;
}

/** For sorting by code unit. */
export function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
