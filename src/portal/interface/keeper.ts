import { KpngError } from '../../errors.ts';
import { Backoff, type BackoffPolicy } from '../../util/backoff.ts';
import type { Clock } from '../../util/clock.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import { LINGER_CHECK_MS, LISTING_INTERVAL_MS, LISTING_SHARE, PROBES_PER_LOOK } from '../bounds.ts';
import { portalFailed, portalLost, portalWritten, type PortalWritten } from '../events.ts';
import { Guard, type ProbeResult } from '../guard.ts';
import type { PortalProblem } from '../portal.ts';
import type { InterfaceAddresses } from './addresses.ts';
import { AddressChanger } from './changer.ts';
import { Holdings } from './holdings.ts';
import { Rounds } from './rounds.ts';

export interface AddressKeeperOptions {
  readonly link: InterfaceAddresses;
  /** Whether `close` removes the addresses. Otherwise they stay, so that a restart finds them. */
  readonly removeOnClose: boolean;
  readonly clock: Clock;
  /** As `Math.random`. */
  readonly random: () => number;
  /** The host's addresses, until they have been listed once; by default as Node tells them. */
  readonly interfaces?: () => readonly HostAddress[];
}

/** Waits before addresses that could not be added are tried again. */
const READMIT_BACKOFF: BackoffPolicy = {
  initialMs: 30_000,
  maxMs: 600_000,
  factor: 2,
  jitter: 0.2,
};

/**
 * Keeps the service addresses on an interface.
 *
 * A sync adds what is missing before listeners open, and removes what nobody wants any more after they
 * have closed, each in one run of a tool. The host is listed at the start and then now and then, the
 * less often the longer that takes. An address over which connections still run stays until they have
 * ended, for a limited time. Addresses that somebody else has removed come back.
 */
export class AddressKeeper {
  readonly #link: InterfaceAddresses;
  readonly #clock: Clock;
  readonly #interfaces: () => readonly HostAddress[];
  #removeOnClose: boolean;
  readonly #holdings = new Holdings();
  readonly #changer: AddressChanger;
  readonly #guard: Guard;
  readonly #rounds = new Rounds();
  readonly #readmitBackoff: Backoff;
  /** Nothing on the interface may overlap. */
  readonly #queue = new SerialQueue();
  #listAt = 0;
  #lingerCheckAt = 0;
  #readmitAt: number | undefined;
  /** Why the next thing that is told of was done. */
  #reason: PortalWritten['reason'] = 'start';
  /** What `prepare` has done since the last commit. */
  #prepared = { added: 0, ms: 0 };
  /** Why the last `prepare` has failed. */
  #failure: KpngError | undefined;
  #closed: Promise<void> | undefined;

  constructor({ link, removeOnClose, clock, random, interfaces }: AddressKeeperOptions) {
    this.#link = link;
    this.#removeOnClose = removeOnClose;
    this.#clock = clock;
    this.#interfaces = interfaces ?? hostAddresses;
    this.#changer = new AddressChanger(link, this.#holdings, clock);
    this.#readmitBackoff = new Backoff(READMIT_BACKOFF, random);
    this.#guard = new Guard({
      clock,
      random,
      look: () => this.#look(),
      housekeeping: () => this.#housekeeping(),
      repair: () => this.#queue.run(() => this.#restore(true)),
    });
  }

  /** Replaces the addresses that a service port wants; none: it is gone. */
  want(servicePort: string, addresses: readonly string[]): void {
    this.#holdings.want(servicePort, addresses);
  }

  /** One for each service port and each address of it that could not be added. */
  get problems(): PortalProblem[] {
    return [...this.#holdings.refused].flatMap(([address, { code, message }]) =>
      [...this.#holdings.users(address)].sort().map((servicePort) => ({
        servicePort,
        portal: undefined,
        code,
        message: `${servicePort} cannot have ${address}, which is tried again later: ${message}`,
      })),
    );
  }

  /** The addresses that the host has by itself. */
  hostAddresses(): readonly HostAddress[] {
    if (this.#changer.isListed) return [...this.#holdings.others];
    return this.#interfaces().filter(({ address }) => !this.#holdings.isWanted(address));
  }

  /**
   * Adds the addresses that are missing. Does not reject, as listeners on other addresses are to open
   * all the same; `commit` does when this has failed.
   */
  prepare(): Promise<void> {
    return this.#queue.run(async () => {
      const begin = this.#clock.now();
      this.#failure = undefined;
      try {
        this.#prepared.added += await this.#addListed();
      } catch (error) {
        this.#failure = this.#failed(error);
      }
      this.#prepared.ms += this.#clock.now() - begin;
    });
  }

  /** Removes what nobody wants. Rejects with KPNG_PORTAL_* when that, or `prepare`, has failed. */
  commit(): Promise<void> {
    return this.#queue.run(async () => {
      if (this.#failure !== undefined) throw this.#failure;
      const begin = this.#clock.now();
      try {
        const removed = await this.#changer.remove(false);
        const { added, ms } = this.#prepared;
        this.#prepared = { added: 0, ms: 0 };
        this.#tell(added, removed, ms + this.#clock.now() - begin);
      } catch (error) {
        throw this.#failed(error);
      }
      this.#guard.start();
    });
  }

  /** From now on `close` removes nothing. */
  leave(): void {
    this.#removeOnClose = false;
  }

  /** Ends the watch and, if asked for, removes everything of ours. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await this.#guard.close();
    await this.#queue.run(async () => {
      if (this.#removeOnClose) await this.#link.dispose();
    });
  }

  /** Adds what is missing, and once more if somebody has removed the interface meanwhile. */
  async #addListed(): Promise<number> {
    if (this.#changer.isListed) {
      const added = await this.#add().catch(retryWhenKnown);
      if (added !== undefined) return added;
    }
    const lost = await this.#list();
    if (lost > 0) this.#tellLoss(lost);
    return this.#add();
  }

  async #list(): Promise<number> {
    const begin = this.#clock.now();
    const lost = await this.#changer.list();
    this.#rounds.reset();
    const now = this.#clock.now();
    this.#listAt = now + Math.max(LISTING_INTERVAL_MS, (now - begin) / LISTING_SHARE);
    return lost;
  }

  async #add(): Promise<number> {
    const added = await this.#changer.add();
    if (this.#holdings.refused.size === 0) {
      this.#readmitAt = undefined;
      this.#readmitBackoff.reset();
    } else {
      this.#readmitAt ??= this.#clock.now() + this.#readmitBackoff.next();
    }
    return added;
  }

  /** Looks whether some of the addresses are there, others each time. */
  async #look(): Promise<ProbeResult> {
    const some = this.#rounds.next(this.#holdings.ours, PROBES_PER_LOOK);
    const found = await Promise.all(some.map((address) => this.#link.has(address)));
    return found.includes(false) ? 'gone' : 'alive';
  }

  async #housekeeping(): Promise<void> {
    const now = this.#clock.now();
    const readmit = this.#readmitAt !== undefined && now >= this.#readmitAt;
    const list = readmit || !this.#changer.isListed || now >= this.#listAt;
    const linger = this.#holdings.toRemove.size > 0 && now >= this.#lingerCheckAt;
    if (!list && !linger) return;
    await this.#queue.run(async () => {
      if (readmit) {
        this.#readmitAt = undefined;
        this.#holdings.readmit();
      }
      if (list) await this.#restore(false);
      if (linger) await this.#removeLate();
    });
  }

  /** Lists the host and puts back what is missing. `sure`: something is. */
  async #restore(sure: boolean): Promise<void> {
    const begin = this.#clock.now();
    try {
      const lost = await this.#list();
      if (lost > 0) this.#tellLoss(lost);
      const added = await this.#add();
      if (lost > 0 || sure) this.#reason = 'repair';
      this.#tell(added, 0, this.#clock.now() - begin);
    } catch (error) {
      throw this.#failed(error);
    }
  }

  async #removeLate(): Promise<void> {
    const begin = this.#clock.now();
    this.#lingerCheckAt = begin + LINGER_CHECK_MS;
    try {
      const removed = await this.#changer.remove(true);
      this.#tell(0, removed, this.#clock.now() - begin);
    } catch (error) {
      throw this.#failed(error);
    }
  }

  #failed(error: unknown): KpngError {
    if (!(error instanceof KpngError)) throw error;
    if (portalFailed.hasSubscribers) portalFailed.publish({ portal: 'address', error });
    // That it works again has to be told, whatever there is to do then.
    if (this.#reason === 'change') this.#reason = 'repair';
    return error;
  }

  #tell(added: number, removed: number, durationMs: number): void {
    const reason = this.#reason;
    if (reason === 'change' && added + removed === 0) return;
    this.#reason = 'change';
    if (!portalWritten.hasSubscribers) return;
    portalWritten.publish({ portal: 'address', reason, added, removed, durationMs });
  }

  #tellLoss(lost: number): void {
    if (!portalLost.hasSubscribers) return;
    const message = `${lost} service addresses are gone from the interface ${this.#link.name}`;
    portalLost.publish({ portal: 'address', message });
  }
}

/** A failure may have its cause in what has changed on the host. Anything unexpected goes on. */
function retryWhenKnown(error: unknown): undefined {
  if (!(error instanceof KpngError)) throw error;
}
