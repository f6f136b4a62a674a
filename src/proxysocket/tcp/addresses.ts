import { formatHostPort } from '../../util/host-port.ts';
import type { KnownAddress } from './transport.ts';

const MAPPED = '::ffff:';

/** The client's address as affinity and source ranges take it; empty when it is not known. */
export function clientAddress({ address = '' }: KnownAddress): string {
  // The way an IPv6 socket writes an IPv4 peer.
  return address.startsWith(MAPPED) && address.includes('.')
    ? address.slice(MAPPED.length)
    : address;
}

/** `ip:port` or `[ip]:port`; empty when it is not known. */
export function addressText({ address, port }: KnownAddress): string {
  return address === undefined || port === undefined ? '' : formatHostPort({ host: address, port });
}
