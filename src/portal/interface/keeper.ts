import { KpngError } from '../../errors.ts';
import { Backoff } from '../../util/backoff.ts';
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
  WRITE_RETRY,
} from '../bounds.ts';
import { portalFailed, portalLost, portalWritten, type PortalWritten } from '../events.ts';
import { audit } from '../audit.ts';
import type { PortalProblem } from '../portal.ts';
import type { ChangeOutcome, InterfaceAddresses, Verb } from './addresses.ts';

export interface AddressKeeperOptions {
  readonly link: InterfaceAddresses;
  /** Whether `close` removes the addresses. Otherwise they stay for a restart. */
  readonly removeOnClose: boolean;
  readonly clock: Clock;
  readonly random: () => number;
  /** The host's addresses, used until they have been listed; by default as Node reports them. */
  readonly interfaces?: () => readonly HostAddress[];
}

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
  /** The service ports that need each address. */
  #wanted: ReadonlyMap<string, readonly string[]> = new Map();
  /** Addresses on the interface that we added. Only these are ever removed. */
  #ours = new Set<string>();
  /** Addresses of the host that are not ours, as last listed; undefined: they have to be listed. */
  #others: ReadonlyMap<string, HostAddress> | undefined;
  /** Since when addresses that are not wanted have to stay for now. */
  readonly #lingering = new Map<string, number>();
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
  #lingerCheckAt = 0;
  #retryAt: number | undefined;
  #reason: PortalWritten['reason'] = 'start';
  #written = { added: 0, removed: 0, durationMs: 0 };
  #failure: unknown;
  #closed: Promise<void> | undefined;

  constructor({ link, removeOnClose, clock, random, interfaces }: AddressKeeperOptions) {
    this.#link = link;
    this.#removeOnClose = removeOnClose;
    this.#clock = clock;
    this.#interfaces = interfaces ?? hostAddresses;
    this.#retryBackoff = new Backoff(WRITE_RETRY, random);
  }

  /** The addresses that could not be added, with the number of service ports that need each. */
  get problems(): PortalProblem[] {
    return Array.from(this.#refused, ([address, { code, message }]) => {
      const servicePort = this.#owner(address);
      const text = `${servicePort} cannot have ${address}; retried later: ${message}`;
      return { servicePort, code, message: text, count: this.#wanted.get(address)?.length ?? 0 };
    });
  }

  hostAddresses(): readonly HostAddress[] {
    if (this.#others !== undefined) return [...this.#others.values()];
    return this.#interfaces().filter(({ address }) => !this.#wanted.has(address));
  }

  /**
   * Adds missing addresses. `pairs`: all wanted addresses, each with every service port that needs it. Never rejects, so
   * that other listeners open anyway; `commit` reports a failure.
   */
  async prepare(pairs: Iterable<readonly [address: string, servicePort: string]>): Promise<void> {
    const wanted = new Map<string, string[]>();
    for (const [address, servicePort] of pairs) {
      const users = wanted.get(address);
      if (users === undefined) wanted.set(address, [servicePort]);
      else users.push(servicePort);
    }
    this.#wanted = wanted;
    for (const each of this.#refused.keys()) if (!wanted.has(each)) this.#refused.delete(each);
    for (const each of this.#lingering.keys()) if (wanted.has(each)) this.#lingering.delete(each);
    this.#failure = undefined;
    await this.#change(() => this.#addListed(), false).catch((error: unknown) => {
      this.#failure = error;
    });
  }

  /** Removes the addresses that no service port needs. Rejects with KPNG_PORTAL_* if that, or `prepare`, failed. */
  async commit(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    await this.#change(() =>
      this.#remove(this.#surplus().filter((address) => !this.#lingering.has(address))),
    );
    const { signal } = this.#closing;
    this.#auditing ??= audit(CANARY_AUDIT, () => this.#check(), this.#clock, signal);
  }

  leave(): void {
    this.#removeOnClose = false;
  }

  /** Stops watching and, if requested, removes all our addresses, once: then they may be another process's. */
  close(): Promise<void> {
    this.#closing.abort();
    this.#closed ??= Promise.resolve(this.#auditing).then(() =>
      this.#queue.run(async () => {
        if (this.#removeOnClose) await this.#link.dispose();
      }),
    );
    return this.#closed;
  }

  /** Checks that some of the addresses exist, different ones each time. Resolves with the repair. */
  async #check(): Promise<(() => Promise<void>) | undefined> {
    if (this.#probed >= this.#ours.size) this.#probed = 0;
    const some = [...this.#ours].slice(this.#probed, this.#probed + PROBES_PER_CHECK);
    this.#probed += some.length;
    const found = await Promise.all(some.map((address) => this.#link.has(address)));
    if (found.includes(false)) {
      return () => {
        this.#reason = 'repair';
        return this.#change(() => this.#restore());
      };
    }
    const now = this.#clock.now();
    const retry = this.#retryAt !== undefined && now >= this.#retryAt;
    const list = retry || this.#others === undefined || now >= this.#listAt;
    const look = now >= this.#lingerCheckAt;
    if (look) this.#lingerCheckAt = now + LINGER_CHECK_MS;
    const linger = look && this.#surplus().length > 0;
    if (!list && !linger) return undefined;
    await this.#change(async () => {
      if (retry) {
        this.#retryAt = undefined;
        this.#refused.clear();
      }
      if (list) await this.#restore();
      if (linger) await this.#remove(this.#surplus());
    });
    return undefined;
  }

  async #restore(): Promise<void> {
    await this.#list();
    await this.#add();
  }

  /** Adds missing addresses; retries if another program removed the interface meanwhile. */
  async #addListed(): Promise<void> {
    if (this.#others !== undefined) {
      try {
        return await this.#add();
      } catch {
        // A change on the host may have caused the failure.
      }
    }
    await this.#restore();
  }

  /** Lists the host's addresses, and reports those of ours that other programs have removed. */
  async #list(): Promise<void> {
    const begin = this.#clock.now();
    this.#others = undefined;
    const { ours, others } = await this.#link.open();
    const before = this.#ours;
    this.#ours = new Set(ours);
    this.#others = new Map(others.map((each) => [each.address, each]));
    for (const each of this.#lingering.keys()) if (!ours.has(each)) this.#lingering.delete(each);
    const lost = [...before].filter((address) => this.#isMissing(address)).length;
    const now = this.#clock.now();
    this.#listAt = now + Math.max(LISTING_INTERVAL_MS, (now - begin) / LISTING_SHARE);
    if (lost === 0) return;
    this.#reason = 'repair';
    const message = `${lost} service addresses are gone from the interface ${this.#link.name}`;
    portalLost.publish({ portal: 'address', message });
  }

  async #add(): Promise<void> {
    const missing = [...this.#wanted.keys()].filter((address) => this.#isMissing(address));
    const { existing = [], refused } = await this.#changeLink('add', missing);
    for (const [address, error] of refused) {
      if (this.#wanted.has(address)) this.#refused.set(address, error);
      this.#publishRefusal(address, error);
    }
    const others = new Set([...existing, ...refused.keys()]);
    for (const address of missing) if (!others.has(address)) this.#ours.add(address);
    // Only a listing shows the owner, which may be an ended process of ours.
    if (existing.length > 0) await this.#list();
    if (this.#refused.size === 0) {
      this.#retryAt = undefined;
      this.#retryBackoff.reset();
    } else {
      this.#retryAt ??= this.#clock.now() + this.#retryBackoff.next();
    }
    this.#written.added += missing.length - others.size;
  }

  /** Those of ours that no service port needs. */
  #surplus(): string[] {
    return [...this.#ours].filter((address) => !this.#wanted.has(address));
  }

  /** Removes unwanted addresses, unless they are in use. */
  async #remove(surplus: readonly string[]): Promise<void> {
    if (surplus.length === 0) return;
    const used = await this.#link.inUse(surplus);
    const now = this.#clock.now();
    const keep = (address: string, since: number): void => {
      if (!this.#wanted.has(address)) this.#lingering.set(address, since);
    };
    const due = surplus.filter((address) => {
      const since = this.#lingering.get(address) ?? now;
      const isKept = used.has(address) && now - since < MAX_LINGER_MS;
      if (isKept) keep(address, since);
      return !isKept;
    });
    const { refused } = await this.#changeLink('delete', due);
    for (const address of due) {
      const error = refused.get(address);
      if (error === undefined) {
        this.#ours.delete(address);
        this.#lingering.delete(address);
      } else {
        keep(address, now);
        this.#publishRefusal(address, error);
      }
    }
    this.#written.removed += due.length - refused.size;
  }

  async #changeLink(verb: Verb, addresses: readonly string[]): Promise<ChangeOutcome> {
    if (addresses.length === 0) return { refused: new Map() };
    try {
      return await this.#link.change(verb, addresses);
    } catch (error) {
      // It may have been partly applied.
      this.#others = undefined;
      throw error;
    }
  }

  /** Whether an address has to be added. */
  #isMissing(address: string): boolean {
    if (!this.#wanted.has(address) || this.#ours.has(address)) return false;
    return this.#others?.has(address) !== true && !this.#refused.has(address);
  }

  /** The first service port of an address, or the address itself. */
  #owner(address: string): string {
    return [...(this.#wanted.get(address) ?? [])].sort()[0] ?? address;
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

  /** A problem of one service port: the others are served. */
  #publishRefusal(address: string, cause: KpngError): void {
    const servicePort = this.#owner(address);
    const error = new KpngError(cause.code, cause.message, { cause, servicePort });
    portalFailed.publish({ portal: 'address', error });
  }
}
