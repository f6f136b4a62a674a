import type { KpngError } from '../../errors.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import type { HostListing } from './addresses.ts';

/**
 * Tracks which addresses are wanted and which exist, and so which to add and remove.
 *
 * Only our own addresses are ever removed. Each operation costs as much as it changes.
 */
export class HeldAddresses {
  /** Service ports by the addresses that they need. */
  readonly #users = new Map<string, Set<string>>();
  /** The last service port that needed an address of ours. */
  readonly #lastUsers = new Map<string, string>();
  readonly #wants = new Map<string, readonly string[]>();
  #ours = new Set<string>();
  #others = new Map<string, HostAddress>();
  /** Wanted addresses that could not be added, and why. */
  readonly refused = new Map<string, KpngError>();
  /** Missing addresses, without the refused ones. */
  readonly toAdd = new Set<string>();
  /** Addresses of ours that no service port needs. */
  readonly toRemove = new Set<string>();

  get ours(): ReadonlySet<string> {
    return this.#ours;
  }

  /** Addresses that are not ours, as last listed. */
  get others(): IterableIterator<HostAddress> {
    return this.#others.values();
  }

  isWanted(address: string): boolean {
    return this.#users.has(address);
  }

  users(address: string): ReadonlySet<string> {
    return this.#users.get(address) ?? NONE;
  }

  /** The owner of an address, or its last one: a service port, or the address itself when unknown. */
  owner(address: string): string {
    const [first] = [...this.users(address)].sort();
    return first ?? this.#lastUsers.get(address) ?? address;
  }

  /** Replaces the addresses of a service port; an empty list removes it. */
  want(servicePort: string, addresses: readonly string[]): void {
    const before = this.#wants.get(servicePort) ?? [];
    if (addresses.length === 0) this.#wants.delete(servicePort);
    else this.#wants.set(servicePort, addresses);
    const after = new Set(addresses);
    for (const address of before) {
      if (after.has(address)) continue;
      const users = this.#users.get(address);
      users?.delete(servicePort);
      if (users?.size === 0) {
        this.#users.delete(address);
        this.#lastUsers.set(address, servicePort);
      }
      this.#update(address);
    }
    for (const address of after) {
      const users = this.#users.get(address);
      if (users === undefined) this.#users.set(address, new Set([servicePort]));
      else users.add(servicePort);
      this.#update(address);
    }
  }

  /** Applies a listing. Returns how many needed addresses of ours have disappeared. */
  listed({ ours, others }: HostListing): number {
    const before = this.#ours;
    this.#ours = new Set(ours);
    this.#others = new Map(others.map((each) => [each.address, each]));
    for (const address of [...before, ...ours, ...this.#users.keys()]) this.#update(address);
    let lost = 0;
    for (const address of before) if (this.toAdd.has(address)) lost += 1;
    return lost;
  }

  added(address: string): void {
    this.refused.delete(address);
    this.#ours.add(address);
    this.#update(address);
  }

  removed(address: string): void {
    this.#ours.delete(address);
    this.#update(address);
  }

  /** An address could not be added. It is not retried until `readmit`. */
  refuse(address: string, error: KpngError): void {
    this.refused.set(address, error);
    this.#update(address);
  }

  readmit(): void {
    const addresses = [...this.refused.keys()];
    this.refused.clear();
    for (const address of addresses) this.#update(address);
  }

  #update(address: string): void {
    const wanted = this.#users.has(address);
    const ours = this.#ours.has(address);
    if (!wanted) this.refused.delete(address);
    if (wanted || !ours) this.#lastUsers.delete(address);
    const missing = wanted && !ours && !this.#others.has(address) && !this.refused.has(address);
    put(this.toAdd, address, missing);
    put(this.toRemove, address, ours && !wanted);
  }
}

const NONE: ReadonlySet<string> = new Set();

function put(set: Set<string>, address: string, isIn: boolean): void {
  if (isIn) set.add(address);
  else set.delete(address);
}
