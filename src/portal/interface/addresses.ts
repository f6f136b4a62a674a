import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { isIP, SocketAddress } from 'node:net';
import type { KpngError } from '../../errors.ts';
import { familyOf } from '../../util/family.ts';
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
  readonly existing?: readonly string[];
  /** Could not be added or removed, and why. */
  readonly refused: ReadonlyMap<string, KpngError>;
}

export type Verb = 'add' | 'delete';

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
   * Adds or removes addresses, in one run of a tool where possible, and resolves when added ones can be bound.
   * Removing an absent address succeeds. Rejects with KPNG_PORTAL_* if none could be changed.
   */
  change(verb: Verb, addresses: readonly string[]): Promise<ChangeOutcome>;

  /** Those of the addresses with TCP connections, possibly among others; none if that is unknown. */
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
export async function hostHas(address: string): Promise<boolean> {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  try {
    await once(socket.bind({ address, port: 0, exclusive: true }), 'listening');
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'EADDRNOTAVAIL';
  } finally {
    socket.close();
  }
}

/** The host of `10.0.0.1:80` or `[fe80::1%eth0]:80`, as Node writes it; empty: it is not an address. */
export function hostOf(place: string): string[] {
  const host = place.slice(0, place.lastIndexOf(':')).replaceAll(/^\[|%.*$|\]$/g, '');
  if (isIP(host) === 0) return [];
  // Windows writes the end of some IPv6 addresses as an IPv4 address.
  return [new SocketAddress({ address: host, family: `ipv${familyOf(host)}` }).address];
}
