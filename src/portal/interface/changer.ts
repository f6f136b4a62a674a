import { KpngError } from '../../errors.ts';
import type { Clock } from '../../util/clock.ts';
import { MAX_LINGER_MS } from '../bounds.ts';
import { portalFailed } from '../events.ts';
import type { ChangeOutcome, InterfaceAddresses } from './addresses.ts';
import type { Holdings } from './holdings.ts';

/**
 * Carries out what holdings ask for, on an interface. An address that cannot be had does not keep the
 * others from being had: it is told, and left out until it is readmitted.
 *
 * Calls must not overlap. Each rejects with KPNG_PORTAL_* when nothing can be done at all; then the host
 * has to be listed before anything else.
 */
export class AddressChanger {
  readonly #link: InterfaceAddresses;
  readonly #holdings: Holdings;
  readonly #clock: Clock;
  /** Addresses that nobody wants and that had to stay, and since when. */
  readonly #lingering = new Map<string, number>();
  #listed = false;

  constructor(link: InterfaceAddresses, holdings: Holdings, clock: Clock) {
    this.#link = link;
    this.#holdings = holdings;
    this.#clock = clock;
  }

  /** Whether what is on the host is known. */
  get isListed(): boolean {
    return this.#listed;
  }

  /** Lists the host. Resolves with the number of addresses that somebody else has removed. */
  async list(): Promise<number> {
    this.#listed = false;
    const lost = this.#holdings.listed(await this.#link.open());
    this.#listed = true;
    return lost;
  }

  /** Adds what is missing. Resolves with the number of addresses added. */
  async add(): Promise<number> {
    const wanted = [...this.#holdings.toAdd];
    if (wanted.length === 0) return 0;
    const { existing, refused } = await this.#change(wanted, []);
    const there = new Set(existing);
    for (const address of wanted) {
      const error = refused.get(address);
      if (error !== undefined) this.#refuse(address, error);
      else if (there.has(address)) this.#holdings.found(address);
      else this.#holdings.added(address);
    }
    // Whose they are, which may be a process of ours that has just ended, only a listing tells.
    if (there.size > 0) this.#listed = false;
    return wanted.length - refused.size - there.size;
  }

  /**
   * Removes what nobody wants and no connection uses. What has been found in use is looked at again only
   * with `all`. Resolves with the number of addresses removed.
   */
  async remove(all: boolean): Promise<number> {
    const { toRemove } = this.#holdings;
    for (const address of this.#lingering.keys()) {
      if (!toRemove.has(address)) this.#lingering.delete(address);
    }
    const due = [...toRemove].filter((address) => all || !this.#lingering.has(address));
    if (due.length === 0) return 0;
    const free = await this.#withoutConnections(due);
    if (free.length === 0) return 0;
    const { refused } = await this.#change([], free);
    for (const address of free) {
      const error = refused.get(address);
      if (error === undefined) this.#holdings.removed(address);
      else {
        this.#linger(address);
        publishFailure(error, this.#holdings.owner(address));
      }
    }
    return free.length - refused.size;
  }

  async #change(add: readonly string[], remove: readonly string[]): Promise<ChangeOutcome> {
    try {
      return await this.#link.change(add, remove);
    } catch (error) {
      // Some of it may have been done.
      this.#listed = false;
      throw error;
    }
  }

  async #withoutConnections(addresses: readonly string[]): Promise<string[]> {
    const used = await this.#link.inUse(addresses);
    return addresses.filter(
      (address) => !used.has(address) || this.#clock.now() - this.#linger(address) >= MAX_LINGER_MS,
    );
  }

  /** Notes that an address has to stay for a while; returns since when it does. */
  #linger(address: string): number {
    const since = this.#lingering.get(address) ?? this.#clock.now();
    this.#lingering.set(address, since);
    return since;
  }

  #refuse(address: string, error: KpngError): void {
    this.#holdings.refuse(address, error);
    publishFailure(error, this.#holdings.owner(address));
  }
}

/** Named as the trouble of one service port, as the others are served. */
function publishFailure(cause: KpngError, servicePort: string): void {
  if (!portalFailed.hasSubscribers) return;
  const error = new KpngError(cause.code, cause.message, { cause, servicePort });
  portalFailed.publish({ portal: 'address', error });
}
