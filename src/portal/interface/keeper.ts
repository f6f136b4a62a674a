import { KpngError } from '../../errors.ts';
import { Backoff, type BackoffPolicy } from '../../util/backoff.ts';
import type { Clock } from '../../util/clock.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import {
  CANARY_AUDIT,
  LINGER_CHECK_MS,
  LISTING_INTERVAL_MS,
  LISTING_SHARE,
  MAX_LINGER_MS,
  PROBES_PER_CHECK,
} from '../bounds.ts';
import { portalFailed, portalLost, portalWritten, type PortalWritten } from '../events.ts';
import { Audit } from '../audit.ts';
import type { PortalProblem } from '../portal.ts';
import { type ChangeOutcome, HeldAddresses, type InterfaceAddresses } from './addresses.ts';

export interface AddressKeeperOptions {
  readonly link: InterfaceAddresses;
  /** Whether `close` removes the addresses. Otherwise they stay for a restart. */
  readonly removeOnClose: boolean;
  readonly clock: Clock;
  readonly random: () => number;
  /** The host's addresses, used until they have been listed; by default as Node reports them. */
  readonly interfaces?: () => readonly HostAddress[];
}

/** Delays before addresses that could not be added are retried. */
const READMIT_BACKOFF: BackoffPolicy = {
  initialMs: 30_000,
  maxMs: 600_000,
  factor: 2,
  jitter: 0.2,
};

/**
 * Keeps the service addresses on an interface.
 *
 * A sync adds missing addresses before listeners open and removes unwanted ones after they have closed, each in one
 * run of a tool. An address with open connections stays for a limited time. Addresses removed by another program are
 * restored; one that cannot be added is reported and retried later.
 */
export class AddressKeeper {
  readonly #link: InterfaceAddresses;
  readonly #clock: Clock;
  readonly #interfaces: () => readonly HostAddress[];
  #removeOnClose: boolean;
  readonly #addresses = new HeldAddresses();
  readonly #audit: Audit;
  /** Number of our addresses that were probed since all were. */
  #probed = 0;
  readonly #readmitBackoff: Backoff;
  /** Operations on the interface must not overlap. */
  readonly #queue = new SerialQueue();
  #listed = false;
  #listAt = 0;
  /** Unneeded addresses that must stay for now, and since when. */
  readonly #lingering = new Map<string, number>();
  #lingerCheckAt = 0;
  #readmitAt: number | undefined;
  #reason: PortalWritten['reason'] = 'start';
  #written = { added: 0, removed: 0, durationMs: 0 };
  #failure: unknown;
  #closed: Promise<void> | undefined;

  constructor({ link, removeOnClose, clock, random, interfaces }: AddressKeeperOptions) {
    this.#link = link;
    this.#removeOnClose = removeOnClose;
    this.#clock = clock;
    this.#interfaces = interfaces ?? hostAddresses;
    this.#readmitBackoff = new Backoff(READMIT_BACKOFF, random);
    this.#audit = new Audit({ clock, policy: () => CANARY_AUDIT, check: () => this.#check() });
  }

  /** Replaces the addresses of a service port; none: it is removed. */
  want(servicePort: string, addresses: readonly string[]): void {
    this.#addresses.want(servicePort, addresses);
  }

  /** At most one per code, with the number of service ports and their addresses that could not be added. */
  get problems(): PortalProblem[] {
    const groups = new Map<string, { address: string; cause: KpngError; count: number }>();
    for (const [address, cause] of this.#addresses.refused) {
      const group = groups.get(cause.code) ?? { address, cause, count: 0 };
      group.count += this.#addresses.users(address).size;
      groups.set(cause.code, group);
    }
    return [...groups.values()].map(({ address, cause: { code, message }, count }) => {
      const servicePort = this.#addresses.owner(address);
      const text = `${servicePort} cannot have ${address}; retried later: ${message}`;
      return { servicePort, code, message: text, count };
    });
  }

  hostAddresses(): readonly HostAddress[] {
    if (this.#listed) return [...this.#addresses.others];
    return this.#interfaces().filter(({ address }) => !this.#addresses.isWanted(address));
  }

  /** Adds missing addresses. Never rejects, so that other listeners open anyway; `commit` reports a failure. */
  prepare(): Promise<void> {
    return this.#queue.run(async () => {
      this.#failure = undefined;
      try {
        await this.#timed(() => this.#addListed());
      } catch (error) {
        this.#failure = error;
      }
    });
  }

  /** Removes the addresses that no service port needs. Rejects with KPNG_PORTAL_* if that, or `prepare`, failed. */
  commit(): Promise<void> {
    return this.#queue.run(async () => {
      if (this.#failure !== undefined) throw this.#failure;
      await this.#publishing(() => this.#remove(false));
      this.#audit.start();
    });
  }

  leave(): void {
    this.#removeOnClose = false;
  }

  /** Stops watching and, if requested, removes all our addresses, once: then they may be another process's. */
  close(): Promise<void> {
    this.#closed ??= this.#audit.close().then(() =>
      this.#queue.run(async () => {
        if (this.#removeOnClose) await this.#link.dispose();
      }),
    );
    return this.#closed;
  }

  /** Checks that some of the addresses exist, different ones each time. Resolves with the repair. */
  async #check(): Promise<(() => Promise<void>) | undefined> {
    const all = [...this.#addresses.ours];
    if (this.#probed >= all.length) this.#probed = 0;
    const some = all.slice(this.#probed, this.#probed + PROBES_PER_CHECK);
    this.#probed += some.length;
    const found = await Promise.all(some.map((address) => this.#link.has(address)));
    if (found.includes(false)) return () => this.#queue.run(() => this.#restore(true));
    await this.#housekeeping();
    return undefined;
  }

  async #housekeeping(): Promise<void> {
    const now = this.#clock.now();
    const readmit = this.#readmitAt !== undefined && now >= this.#readmitAt;
    const list = readmit || !this.#listed || now >= this.#listAt;
    const linger = this.#addresses.toRemove.size > 0 && now >= this.#lingerCheckAt;
    if (!list && !linger) return;
    await this.#queue.run(async () => {
      if (readmit) {
        this.#readmitAt = undefined;
        this.#addresses.readmit();
      }
      if (list) await this.#restore(false);
      if (!linger) return;
      this.#lingerCheckAt = this.#clock.now() + LINGER_CHECK_MS;
      await this.#publishing(() => this.#remove(true));
    });
  }

  /** Lists the host's addresses and adds missing ones. `sure`: some are missing. */
  #restore(sure: boolean): Promise<void> {
    return this.#publishing(async () => {
      const lost = await this.#list();
      await this.#add();
      if (lost > 0 || sure) this.#reason = 'repair';
    });
  }

  /** Adds missing addresses; retries if another program removed the interface meanwhile. */
  async #addListed(): Promise<void> {
    if (this.#listed) {
      try {
        return await this.#add();
      } catch (error) {
        // A change on the host may have caused the failure.
        if (!(error instanceof KpngError)) throw error;
      }
    }
    await this.#list();
    await this.#add();
  }

  /** Lists the host's addresses. Resolves with the number removed by other programs. */
  async #list(): Promise<number> {
    const begin = this.#clock.now();
    this.#listed = false;
    const lost = this.#addresses.listed(await this.#link.open());
    this.#listed = true;
    const now = this.#clock.now();
    this.#listAt = now + Math.max(LISTING_INTERVAL_MS, (now - begin) / LISTING_SHARE);
    if (lost > 0) {
      const message = `${lost} service addresses are gone from the interface ${this.#link.name}`;
      portalLost.publish({ portal: 'address', message });
    }
    return lost;
  }

  async #add(): Promise<void> {
    const wanted = [...this.#addresses.toAdd];
    const { existing, refused } = await this.#change(wanted, []);
    const there = new Set(existing);
    for (const address of wanted) {
      const error = refused.get(address);
      if (error !== undefined) {
        this.#addresses.refuse(address, error);
        this.#publishRefusal(address, error);
      } else if (!there.has(address)) this.#addresses.added(address);
    }
    // Only a listing shows the owner, which may be an ended process of ours.
    if (there.size > 0) await this.#list();
    if (this.#addresses.refused.size === 0) {
      this.#readmitAt = undefined;
      this.#readmitBackoff.reset();
    } else {
      this.#readmitAt ??= this.#clock.now() + this.#readmitBackoff.next();
    }
    this.#written.added += wanted.length - refused.size - there.size;
  }

  /** Removes unwanted, unused addresses; those found in use are checked again only with `all`. */
  async #remove(all: boolean): Promise<void> {
    const { toRemove } = this.#addresses;
    for (const address of this.#lingering.keys()) {
      if (!toRemove.has(address)) this.#lingering.delete(address);
    }
    const due = [...toRemove].filter((address) => all || !this.#lingering.has(address));
    if (due.length === 0) return;
    const used = await this.#link.inUse(due);
    const free = due.filter(
      (address) => !used.has(address) || this.#clock.now() - this.#linger(address) >= MAX_LINGER_MS,
    );
    const { refused } = await this.#change([], free);
    for (const address of free) {
      const error = refused.get(address);
      if (error === undefined) this.#addresses.removed(address);
      else {
        this.#linger(address);
        this.#publishRefusal(address, error);
      }
    }
    this.#written.removed += free.length - refused.size;
  }

  async #change(add: readonly string[], remove: readonly string[]): Promise<ChangeOutcome> {
    if (add.length + remove.length === 0) return { existing: [], refused: new Map() };
    try {
      return await this.#link.change(add, remove);
    } catch (error) {
      // It may have been partly applied.
      this.#listed = false;
      throw error;
    }
  }

  /** Records that an address must stay for a while; returns since when. */
  #linger(address: string): number {
    const since = this.#lingering.get(address) ?? this.#clock.now();
    this.#lingering.set(address, since);
    return since;
  }

  /** Runs a change and reports it. Rejects with the failure, which is reported as well. */
  async #publishing(action: () => Promise<void>): Promise<void> {
    await this.#timed(action);
    const written = this.#written;
    const reason = this.#reason;
    this.#written = { added: 0, removed: 0, durationMs: 0 };
    this.#reason = 'change';
    if (reason === 'change' && written.added + written.removed === 0) return;
    portalWritten.publish({ portal: 'address', reason, ...written });
  }

  async #timed(action: () => Promise<void>): Promise<void> {
    const begin = this.#clock.now();
    try {
      await action();
      this.#written.durationMs += this.#clock.now() - begin;
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      portalFailed.publish({ portal: 'address', error });
      // The next success is reported, even without changes.
      if (this.#reason === 'change') this.#reason = 'repair';
      throw error;
    }
  }

  /** A problem of one service port: the others are served. */
  #publishRefusal(address: string, cause: KpngError): void {
    const servicePort = this.#addresses.owner(address);
    const error = new KpngError(cause.code, cause.message, { cause, servicePort });
    portalFailed.publish({ portal: 'address', error });
  }
}
