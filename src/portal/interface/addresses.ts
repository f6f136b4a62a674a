import { createSocket } from 'node:dgram';
import type { KpngError } from '../../errors.ts';
import type { HostAddress } from '../../util/host-addresses.ts';

/** The addresses of the host at one moment. */
export interface HostListing {
  /** Addresses on the interface that this program, or a previous process of it, has added. */
  readonly ours: ReadonlySet<string>;
  /** All others, of every interface. They are never removed. */
  readonly others: readonly HostAddress[];
}

/** What became of an attempt to change addresses. Those that are in neither list were changed. */
export interface ChangeOutcome {
  /** Were to be added, and were there already. */
  readonly existing: readonly string[];
  /** Could not be added or removed, and why. */
  readonly refused: ReadonlyMap<string, KpngError>;
}

/**
 * Addresses on one network interface: what differs between systems.
 *
 * Knows the addresses that it added from all others, also after a kill, and never touches the others. Changes do not
 * overlap. Addresses are canonical IP literals, added as /32 or /128.
 */
export interface InterfaceAddresses {
  /** Name of the interface, for messages. */
  readonly name: string;

  /** Brings the interface up if needed and lists the host's addresses. Rejects with KPNG_PORTAL_*. */
  open(): Promise<HostListing>;

  /**
   * Adds and removes addresses, in one run of a tool where possible, and resolves when the added ones can be bound.
   * Removing an absent address succeeds. Rejects with KPNG_PORTAL_* when none could be changed.
   */
  change(add: readonly string[], remove: readonly string[]): Promise<ChangeOutcome>;

  /** Those of the addresses that are an end of TCP connections; none where this cannot be found out. */
  inUse(addresses: readonly string[]): Promise<ReadonlySet<string>>;

  /** Whether the host has an address now. Cheap, and runs no program. */
  has(address: string): Promise<boolean>;

  /**
   * Removes our addresses, and the interface if we made it and it is empty. Idempotent. Rejects with KPNG_PORTAL_*.
   */
  dispose(): Promise<void>;
}

/** Whether the host has an address, by binding a socket to it (some µs). When in doubt it counts as there. */
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
