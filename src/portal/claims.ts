import { put } from '../util/compare.ts';
import { familyOf, WILDCARD } from '../util/family.ts';
import { type PortalProblem, type PortalSpec, portalText } from './portal.ts';

/** All claims that can conflict: those of one protocol, family and port. */
interface Bucket {
  readonly key: number;
  /** The address that means all addresses. */
  readonly wildcard: string;
  /** Owner by address. */
  readonly holders: Map<string, string>;
  /** Unmet claims, by address and owner. */
  readonly waiting: Map<string, Map<string, PortalSpec>>;
}

/** Addresses that were released or claimed. */
type Touched = Map<Bucket, Set<string>>;

/**
 * The owner of each address and port, which only one service port can have. A claim without an address is for the node
 * ports of rules, which conflict only with each other.
 *
 * The wildcard address conflicts with every address with the same port: on Linux the second bind fails. A holder
 * keeps its claim. A free address goes to the first waiting service port by name. An update costs as much as its
 * changes.
 */
export class ClaimTable {
  readonly #buckets = new Map<number, Bucket>();
  readonly #claims = new Map<string, readonly PortalSpec[]>();
  readonly #contested = new Set<Bucket>();
  #unmet = 0;

  /**
   * Replaces the claims of owners in `set` and drops those in `remove`; others get released addresses in the same
   * update. Of equal claims of one owner, the first counts. Returns the owners that won a claim they had to wait for.
   */
  update(
    set: ReadonlyMap<string, readonly PortalSpec[]>,
    remove: Iterable<string>,
  ): ReadonlySet<string> {
    const touched: Touched = new Map();
    const changed = new Set<string>();
    for (const owner of remove) if (!set.has(owner)) this.#replace(owner, [], touched);
    // By name: an address that is free, and that no one waits for, is claimed at once.
    for (const owner of [...set.keys()].sort()) this.#replace(owner, set.get(owner) ?? [], touched);
    for (const [bucket, addresses] of touched) {
      this.#settle(bucket, addresses, changed);
      if (bucket.holders.size === 0) this.#buckets.delete(bucket.key);
    }
    return changed;
  }

  held(owner: string): readonly PortalSpec[] {
    const claims = this.#claims.get(owner) ?? [];
    if (this.#unmet === 0) return claims;
    const isHeld = (claim: PortalSpec): boolean =>
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

  /** A claim that may conflict waits until its bucket is settled. */
  #replace(owner: string, claims: readonly PortalSpec[], touched: Touched): void {
    const before = this.#claims.get(owner) ?? [];
    const after = unique(claims);
    put(this.#claims, owner, after.length > 0 ? after : undefined);
    const touch = (bucket: Bucket, address: string): void => {
      touched.set(bucket, (touched.get(bucket) ?? new Set()).add(address));
    };
    for (const claim of without(before, after)) {
      const bucket = this.#bucketOf(claim);
      const address = addressOf(claim);
      this.#stopWaiting(bucket, owner, address);
      if (bucket.holders.get(address) !== owner) continue;
      bucket.holders.delete(address);
      touch(bucket, address);
    }
    const added = without(after, before).toSorted((a, b) => compare(addressOf(a), addressOf(b)));
    for (const claim of added) {
      const bucket = this.#bucketOf(claim);
      const address = addressOf(claim);
      const isAlone = bucket.waiting.size === 0 && address !== bucket.wildcard;
      if (isAlone && holderOf(bucket, address) === undefined) {
        bucket.holders.set(address, owner);
        continue;
      }
      const owners = bucket.waiting.get(address) ?? new Map<string, PortalSpec>();
      bucket.waiting.set(address, owners.set(owner, claim));
      this.#contested.add(bucket);
      this.#unmet += 1;
      touch(bucket, address);
    }
  }

  /** Assigns free addresses to the owners that wait for them, by name. */
  #settle(bucket: Bucket, touched: ReadonlySet<string>, changed: Set<string>): void {
    const { wildcard, holders, waiting } = bucket;
    // Every single address waits for the wildcard; the wildcard waits for all of them.
    const all = touched.has(wildcard) ? [...waiting.keys()] : [wildcard, ...touched];
    const free = all.filter((address) => holderOf(bucket, address) === undefined);
    const candidates = free.flatMap((address) =>
      Array.from(waiting.get(address) ?? [], ([owner]) => ({ owner, address })),
    );
    candidates.sort((a, b) => compare(a.owner, b.owner) || compare(a.address, b.address));
    for (const { owner, address } of candidates) {
      if (holderOf(bucket, address) !== undefined) continue;
      this.#stopWaiting(bucket, owner, address);
      holders.set(address, owner);
      changed.add(owner);
    }
  }

  #stopWaiting(bucket: Bucket, owner: string, address: string): void {
    const owners = bucket.waiting.get(address);
    if (owners?.delete(owner) !== true) return;
    if (owners.size === 0) bucket.waiting.delete(address);
    if (bucket.waiting.size === 0) this.#contested.delete(bucket);
    this.#unmet -= 1;
  }

  #bucketOf(claim: PortalSpec): Bucket {
    const key = bucketKey(claim);
    let bucket = this.#buckets.get(key);
    if (bucket === undefined) {
      const wildcard = WILDCARD[familyOf(addressOf(claim))];
      bucket = { key, wildcard, holders: new Map(), waiting: new Map() };
      this.#buckets.set(key, bucket);
    }
    return bucket;
  }
}

function unique(claims: readonly PortalSpec[]): readonly PortalSpec[] {
  if (claims.length < 2) return claims;
  const keys = new Set(claims.map(claimKey));
  if (keys.size === claims.length) return claims;
  return claims.filter((claim) => keys.delete(claimKey(claim)));
}

function without(
  claims: readonly PortalSpec[],
  others: readonly PortalSpec[],
): readonly PortalSpec[] {
  if (claims.length === 0 || others.length === 0) return claims;
  const keys = new Set(others.map(claimKey));
  return claims.filter((claim) => !keys.has(claimKey(claim)));
}

function claimKey(claim: PortalSpec): string {
  return `${claim.protocol} ${addressOf(claim)} ${claim.port}`;
}

function addressOf({ address }: PortalSpec): string {
  return address ?? 'node';
}

function bucketKey(claim: PortalSpec): number {
  const family = familyOf(addressOf(claim)) === 6 ? 1 : 0;
  return claim.port * 4 + family * 2 + (claim.protocol === 'TCP' ? 1 : 0);
}

function holderOf({ holders, wildcard }: Bucket, address: string): string | undefined {
  if (address !== wildcard) return holders.get(address) ?? holders.get(wildcard);
  return holders.get(wildcard) ?? holders.values().next().value;
}

/** For sorting by code unit. */
export function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
