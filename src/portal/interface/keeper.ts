import { KpngError } from '../../errors.ts';
import { Backoff } from '../../util/backoff.ts';
import type { Clock } from '../../util/clock.ts';
import { put } from '../../util/compare.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import {
  CANARY_AUDIT,
  LISTING_INTERVAL_MS,
  LISTING_SHARE,
  MAX_LINGER_MS,
  PROBES_PER_CHECK,
  WRITE_RETRY,
} from '../bounds.ts';
import { portalFailed, portalLost, portalWritten, type PortalWritten } from '../events.ts';
import { audit } from '../audit.ts';
import type { PortalProblem } from '../portal.ts';
import type { ChangeOutcome, InterfaceAddresses, Verb } from './addresses.ts';

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
  /** The addresses of each service port. */
  readonly #wants = new Map<string, readonly string[]>();
  /** The service ports that need an address. */
  readonly #users = new Map<string, Set<string>>();
  /** Addresses on the interface that we added. Only these are ever removed. */
  #ours = new Set<string>();
  /** Addresses of the host that are not ours, as last listed; undefined: they have to be listed. */
  #others: ReadonlyMap<string, HostAddress> | undefined;
  /** Addresses to add; some may be there. */
  #missing = new Set<string>();
  /** Those of ours that no service port needs, and since when they have to stay for now; undefined: not known. */
  #surplus = new Map<string, number | undefined>();
  /** Wanted addresses that could not be added, and why. */
  readonly #refused = new Map<string, KpngError>();
  readonly #closing = new AbortController();
  #auditing: Promise<void> | undefined;
  /** Number of our addresses that were probed since all were. */
  #probed = 0;
  readonly #retryBackoff: Backoff;
  /** Operations on the interface must not overlap. */
  readonly #queue = new SerialQueue();
  #listAt = 0;
  #retryAt: number | undefined;
  #reason: PortalWritten['reason'] = 'start';
  #written = { added: 0, removed: 0, durationMs: 0 };
  #prepared: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  constructor(link: InterfaceAddresses, clock: Clock, random: () => number) {
    this.#link = link;
    this.#clock = clock;
    this.#retryBackoff = new Backoff(WRITE_RETRY, random);
  }

  /** Replaces the addresses of a service port; none: it is removed. */
  want(servicePort: string, addresses: readonly string[]): void {
    const before = this.#wants.get(servicePort) ?? [];
    put(this.#wants, servicePort, addresses.length > 0 ? addresses : undefined);
    for (const address of addresses) {
      this.#users.set(address, (this.#users.get(address) ?? new Set()).add(servicePort));
      this.#surplus.delete(address);
      if (!this.#ours.has(address)) this.#missing.add(address);
    }
    const after = new Set(addresses);
    for (const address of before) {
      const users = this.#users.get(address);
      if (after.has(address) || users?.delete(servicePort) !== true || users.size > 0) continue;
      this.#users.delete(address);
      this.#refused.delete(address);
      if (this.#ours.has(address)) this.#surplus.set(address, undefined);
    }
  }

  /** The addresses that could not be added, with the number of service ports that need each. */
  get problems(): PortalProblem[] {
    return Array.from(this.#refused, ([address, { code, message }]) => {
      const servicePort = this.#owner(address);
      const text = `${servicePort} cannot have ${address}; retried later: ${message}`;
      return { servicePort, code, message: text, count: this.#users.get(address)?.size ?? 0 };
    });
  }

  hostAddresses(): readonly HostAddress[] {
    if (this.#others !== undefined) return [...this.#others.values()];
    return hostAddresses().filter(({ address }) => !this.#users.has(address));
  }

  /** Adds missing addresses. Never rejects, so that other listeners open anyway; `commit` reports a failure. */
  async prepare(): Promise<void> {
    this.#prepared = this.#change(() => this.#addListed(), false);
    await this.#prepared.catch(() => undefined);
  }

  /** Removes the addresses that no service port needs. Rejects with KPNG_PORTAL_* if that, or `prepare`, failed. */
  async commit(): Promise<void> {
    await this.#prepared;
    await this.#change(() => this.#remove(false));
    const { signal } = this.#closing;
    this.#auditing ??= audit(CANARY_AUDIT, () => this.#check(), this.#clock, signal);
  }

  /** Stops watching and, if requested, removes all our addresses, once: then they may be another process's. */
  close(removes = false): Promise<void> {
    this.#closing.abort();
    this.#closed ??= Promise.resolve(this.#auditing).then(() =>
      this.#queue.run(async () => {
        if (removes) await this.#link.dispose();
      }),
    );
    return this.#closed;
  }

  /** Checks that some of the addresses exist, different ones each time. Repairs and returns whether one was missing. */
  async #check(): Promise<boolean> {
    if (this.#probed >= this.#ours.size) this.#probed = 0;
    const some = [...this.#ours].slice(this.#probed, this.#probed + PROBES_PER_CHECK);
    this.#probed += some.length;
    const found = await Promise.all(some.map((address) => this.#link.has(address)));
    const isDamaged = found.includes(false);
    const now = this.#clock.now();
    const retry = this.#retryAt !== undefined && now >= this.#retryAt;
    if (isDamaged) this.#reason = 'repair';
    else if (!retry && this.#others !== undefined && now < this.#listAt) return false;
    await this.#change(async () => {
      if (retry) {
        this.#retryAt = undefined;
        this.#refused.clear();
      }
      this.#others = undefined;
      await this.#addListed();
      await this.#remove(true);
    });
    return isDamaged;
  }

  /** Adds missing addresses, after a listing if there is none, or if another program removed the interface. */
  async #addListed(): Promise<void> {
    if (this.#others !== undefined) {
      try {
        return await this.#add();
      } catch {
        // A change on the host may have caused the failure.
      }
    }
    await this.#list();
    await this.#add();
  }

  /** Lists the host's addresses, and reports those of ours that other programs have removed. */
  async #list(): Promise<void> {
    const begin = this.#clock.now();
    this.#others = undefined;
    const { ours, others } = await this.#link.open();
    const before = this.#ours;
    this.#ours = new Set(ours);
    this.#others = new Map(others.map((each) => [each.address, each]));
    const surplus = [...ours].filter((address) => !this.#users.has(address));
    this.#surplus = new Map(surplus.map((address) => [address, this.#surplus.get(address)]));
    this.#missing = new Set([...this.#users.keys()].filter((address) => this.#isMissing(address)));
    const lost = [...before].filter((address) => this.#missing.has(address)).length;
    const now = this.#clock.now();
    this.#listAt = now + Math.max(LISTING_INTERVAL_MS, (now - begin) / LISTING_SHARE);
    if (lost === 0) return;
    this.#reason = 'repair';
    const message = `${lost} service addresses are gone from the interface ${this.#link.name}`;
    portalLost.publish({ portal: 'address', message });
  }

  async #add(): Promise<void> {
    const wanted = [...this.#missing].filter((address) => this.#isMissing(address));
    const { existing = [], refused } = await this.#changeLink('add', wanted);
    for (const [address, error] of refused) {
      if (this.#users.has(address)) this.#refused.set(address, error);
    }
    const others = new Set([...existing, ...refused.keys()]);
    for (const address of wanted) {
      this.#missing.delete(address);
      if (others.has(address)) continue;
      this.#ours.add(address);
      // No service port needs it any more.
      if (!this.#users.has(address)) this.#surplus.set(address, undefined);
    }
    // Only a listing shows the owner, which may be an ended process of ours.
    if (existing.length > 0) await this.#list();
    if (this.#refused.size === 0) {
      this.#retryAt = undefined;
      this.#retryBackoff.reset();
    } else {
      this.#retryAt ??= this.#clock.now() + this.#retryBackoff.next();
    }
    this.#written.added += wanted.length - others.size;
  }

  /** Removes unwanted addresses that are not in use, or have been too long. Those that had to stay: only with `all`. */
  async #remove(all: boolean): Promise<void> {
    const surplus = [...this.#surplus].filter(([, since]) => all || since === undefined);
    if (surplus.length === 0) return;
    const used = await this.#link.inUse(surplus.map(([address]) => address));
    const now = this.#clock.now();
    const due: string[] = [];
    for (const [address, since = now] of surplus) {
      if (!used.has(address) || now - since >= MAX_LINGER_MS) due.push(address);
      else if (this.#surplus.has(address)) this.#surplus.set(address, since);
    }
    const { refused } = await this.#changeLink('delete', due);
    for (const address of due) {
      if (refused.has(address)) {
        if (this.#surplus.has(address)) this.#surplus.set(address, now);
        continue;
      }
      this.#ours.delete(address);
      this.#surplus.delete(address);
      if (this.#users.has(address)) this.#missing.add(address);
    }
    this.#written.removed += due.length - refused.size;
  }

  /** Reports the addresses that are refused. */
  async #changeLink(verb: Verb, addresses: readonly string[]): Promise<ChangeOutcome> {
    if (addresses.length === 0) return { refused: new Map() };
    try {
      const outcome = await this.#link.change(verb, addresses);
      for (const [address, cause] of outcome.refused) {
        // A problem of one service port: the others are served.
        const servicePort = this.#owner(address);
        const error = new KpngError(cause.code, cause.message, { cause, servicePort });
        portalFailed.publish({ portal: 'address', error });
      }
      return outcome;
    } catch (error) {
      // It may have been partly applied.
      this.#others = undefined;
      throw error;
    }
  }

  /** Whether an address has to be added. */
  #isMissing(address: string): boolean {
    if (!this.#users.has(address) || this.#ours.has(address)) return false;
    return this.#others?.has(address) !== true && !this.#refused.has(address);
  }

  /** The first service port of an address, or the address itself. */
  #owner(address: string): string {
    return [...(this.#users.get(address) ?? [])].sort()[0] ?? address;
  }

  /**
   * Runs a change after those before it, and reports it, or with the next one if it is not the `last`. Rejects with the
   * failure, which is reported as well.
   */
  #change(action: () => Promise<void>, last = true): Promise<void> {
    return this.#queue.run(async () => {
      const begin = this.#clock.now();
      try {
        await action();
      } catch (error) {
        if (!(error instanceof KpngError)) throw error;
        portalFailed.publish({ portal: 'address', error });
        // The next success is reported, even without changes.
        if (this.#reason === 'change') this.#reason = 'repair';
        throw error;
      }
      this.#written.durationMs += this.#clock.now() - begin;
      if (!last) return;
      const [reason, written] = [this.#reason, this.#written];
      this.#reason = 'change';
      this.#written = { added: 0, removed: 0, durationMs: 0 };
      if (reason === 'change' && written.added + written.removed === 0) return;
      portalWritten.publish({ portal: 'address', reason, ...written });
    });
  }
}
