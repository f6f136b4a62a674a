import { createSocket } from 'node:dgram';
import type { KpngError } from '../../errors.ts';
import type { HostAddress } from '../../util/host-addresses.ts';

/** The addresses of the host at one moment. */
export interface HostListing {
  /** Addresses on the interface that this program has added, or one that ran before it. */
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
 * Addresses on one network interface: what is different from system to system.
 *
 * It has to be able to tell the addresses that it added from all others, also after the process was
 * killed, and never touches the others. Calls that change something do not overlap. Addresses are IP
 * literals in canonical form, and an IPv4 address is added as /32, an IPv6 address as /128.
 */
export interface InterfaceAddresses {
  /** Name of the interface, for messages. */
  readonly name: string;

  /**
   * Makes sure that the interface is there and in operation, and lists the addresses of the host.
   * Rejects with KPNG_PORTAL_* when that cannot be.
   */
  open(): Promise<HostListing>;

  /**
   * Adds and removes addresses, all in one run of a tool where the system allows. Removing one that is
   * not there succeeds. Resolves when those that were added can be listened on. Rejects with
   * KPNG_PORTAL_* when no address could be changed for a reason that has nothing to do with them.
   */
  change(add: readonly string[], remove: readonly string[]): Promise<ChangeOutcome>;

  /** Those of the addresses that are an end of TCP connections; none where this cannot be found out. */
  inUse(addresses: readonly string[]): Promise<ReadonlySet<string>>;

  /** Whether the host has an address now. Cheap, and runs no program. */
  has(address: string): Promise<boolean>;

  /**
   * Removes every address that is ours, and the interface if this program has made it and nothing else
   * is on it. May be done twice. Rejects with KPNG_PORTAL_* when it cannot be done.
   */
  dispose(): Promise<void>;
}

/**
 * Whether the host has an address, found out by binding a socket to it for a moment: a few
 * microseconds, whatever number of addresses there are. When it cannot be found out, the address counts
 * as there.
 */
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
