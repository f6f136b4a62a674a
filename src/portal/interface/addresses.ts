import { createSocket } from 'node:dgram';
import ipaddr from 'ipaddr.js';
import type { KpngError } from '../../errors.ts';
import type { HostAddress } from '../../util/host-addresses.ts';

/** The addresses of the host at one moment. */
export interface HostListing {
  /** Addresses on the interface that were added by this program, or by a previous process of it. */
  readonly ours: ReadonlySet<string>;
  /** All others, of every interface. They are never removed. */
  readonly others: readonly HostAddress[];
}

/** The outcome of a change of addresses. Those in neither list were changed. */
export interface ChangeOutcome {
  /** Addresses to add that already existed. */
  readonly existing: readonly string[];
  /** Could not be added or removed, and why. */
  readonly refused: ReadonlyMap<string, KpngError>;
}

/**
 * Addresses on one network interface: the system-specific part.
 *
 * Distinguishes addresses that it added from all others, even after it was killed, and never touches the others.
 * Changes do not overlap. Addresses are canonical IP literals, added as /32 or /128.
 */
export interface InterfaceAddresses {
  /** Name of the interface, for messages. */
  readonly name: string;

  /** Brings the interface up if needed and lists the host's addresses. Rejects with KPNG_PORTAL_*. */
  open(): Promise<HostListing>;

  /**
   * Adds and removes addresses, in one run of a tool where possible, and resolves when the added ones can be bound.
   * Removing an absent address succeeds. Rejects with KPNG_PORTAL_* if none could be changed.
   */
  change(add: readonly string[], remove: readonly string[]): Promise<ChangeOutcome>;

  /** Those of the addresses with TCP connections; none if that is unknown. */
  inUse(addresses: readonly string[]): Promise<ReadonlySet<string>>;

  /** Whether the host has an address now. Cheap, and runs no program. */
  has(address: string): Promise<boolean>;

  /**
   * Removes our addresses, and the interface if we created it and it is empty. Idempotent. Rejects with
   * KPNG_PORTAL_*.
   */
  dispose(): Promise<void>;
}

/** Whether the host has an address, by binding a socket to it (some µs). In doubt, yes. */
export function hostHas(address: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  socket.once('error', (error: NodeJS.ErrnoException) => {
    socket.close();
    resolve(error.code !== 'EADDRNOTAVAIL');
  });
  socket.bind({ address, port: 0, exclusive: true }, () => {
    socket.close();
    resolve(true);
  });
  return promise;
}

/**
 * The canonical form of a listed address. Parsing 10,000 takes long, and only those that begin with zeros or end with an
 * IPv4 address are listed in another form.
 */
export function canonicalAddress(text: string): string {
  const isCanonical = !text.includes(':') || /^[^0:.][^.]*$/.test(text);
  return isCanonical ? text : ipaddr.parse(text).toString();
}

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
    for (const address of new Set([...before, ...after])) {
      const users = this.#users.get(address) ?? new Set();
      if (after.has(address)) users.add(servicePort);
      else users.delete(servicePort);
      this.#users.set(address, users);
      if (users.size === 0) {
        this.#users.delete(address);
        this.#lastUsers.set(address, servicePort);
      }
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
