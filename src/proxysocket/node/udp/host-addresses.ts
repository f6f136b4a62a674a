import type { Clock, Timer } from '../../../util/clock.ts';
import { familyOf, type Family } from '../../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../../util/host-addresses.ts';

/** How often the host's addresses are read again while there is a wildcard listener. Milliseconds. */
const ADDRESS_POLL_MS = 5000;

/** The unicast addresses of the host, as IP literals. */
export type HostAddresses = Record<Family, readonly string[]>;

const NONE: HostAddresses = { 4: [], 6: [] };

/**
 * The addresses of this host. Without the link-local ones of IPv6: they need a zone, and every pod interface of a
 * node has one.
 */
export function readHostAddresses(
  read: () => readonly HostAddress[] = hostAddresses,
): HostAddresses {
  const usable = read()
    .map(({ address }) => address)
    .filter((address) => !/^fe[89ab]/i.test(address));
  const of = (family: Family): string[] => [
    ...new Set(usable.filter((address) => familyOf(address) === family)),
  ];
  return { 4: of(4), 6: of(6) };
}

/**
 * Reports the addresses of the host to subscribers at intervals, since Node has no event for one that
 * appears. Works only while there are subscribers.
 */
export class HostAddressWatch {
  readonly #clock: Clock;
  readonly #read: () => HostAddresses;
  readonly #subscribers = new Set<(addresses: HostAddresses) => void>();
  #timer: Timer | undefined;
  #latest = NONE;

  constructor(clock: Clock, read: () => HostAddresses = () => readHostAddresses()) {
    this.#clock = clock;
    this.#read = read;
  }

  /**
   * Returns the addresses, not older than one interval; `onAddresses` is called at every later
   * reading, changed or not.
   */
  subscribe(onAddresses: (addresses: HostAddresses) => void): HostAddresses {
    this.#subscribers.add(onAddresses);
    if (this.#timer === undefined) this.#readAgain();
    return this.#latest;
  }

  unsubscribe(onAddresses: (addresses: HostAddresses) => void): void {
    this.#subscribers.delete(onAddresses);
    if (this.#subscribers.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #readAgain(): void {
    this.#latest = this.#read();
    this.#timer = this.#clock.setTimer(ADDRESS_POLL_MS, () => {
      this.#readAgain();
      for (const onAddresses of this.#subscribers) onAddresses(this.#latest);
    });
  }
}
