import type { BalancerEndpoint, Pick } from '../../roundrobin/types.ts';
import { formatHostPort } from '../../util/host-port.ts';
import type { ServicePort } from '../core/service-port.ts';
import { REJECT_COUNTERS, type ConnectErrorCause, type RejectReason } from '../counters.ts';
import {
  connectFailed,
  endpointPicked,
  rejected,
  relayEnded,
  relayStarted,
  tcpAccepted,
  type RelayAddresses,
} from '../events.ts';
import type { RelayEnd, TcpClient, TcpDial, TcpRelay, KnownAddress } from './transport.ts';

/** Has the client's `ip:port`; reading it may cost a system call. */
interface Client {
  readonly remoteAddress: string;
}

export function publishAccepted({ name }: ServicePort, client: TcpClient): void {
  if (!tcpAccepted.hasSubscribers) return;
  tcpAccepted.publish({
    servicePort: name,
    remoteAddress: addressText(client.remoteAddress()),
    localAddress: addressText(client.localAddress()),
  });
}

/** Counts a rejected client. Without a client its address is not known. */
export function countRejected(owner: ServicePort, reason: RejectReason, client?: Client): void {
  owner.counters[REJECT_COUNTERS[reason]] += 1;
  if (!rejected.hasSubscribers) return;
  const remoteAddress = client?.remoteAddress ?? '';
  rejected.publish({ servicePort: owner.name, protocol: 'TCP', remoteAddress, reason });
}

export function publishPicked(
  { name, balancer }: ServicePort,
  { endpoint, sticky }: Pick,
  attempt: number,
  client: Client,
): void {
  if (!endpointPicked.hasSubscribers) return;
  endpointPicked.publish({
    servicePort: name,
    sourceAddress: client.remoteAddress,
    endpoint: endpoint.text,
    sticky,
    endpoints: balancer.size,
    attempt,
  });
}

export function publishConnectFailed(
  { name }: ServicePort,
  { text }: BalancerEndpoint,
  attempt: number,
  cause: ConnectErrorCause,
  error: Error,
): void {
  if (!connectFailed.hasSubscribers) return;
  connectFailed.publish({ servicePort: name, endpoint: text, attempt, cause, error });
}

/** Returns the four addresses of a relay; undefined without subscribers, since they cost three system calls. */
export function publishStarted(
  { name }: ServicePort,
  { text }: BalancerEndpoint,
  source: Client,
  client: TcpClient,
  dial: TcpDial,
): RelayAddresses | undefined {
  if (!relayStarted.hasSubscribers && !relayEnded.hasSubscribers) return undefined;
  const addresses = {
    servicePort: name,
    endpoint: text,
    inRemoteAddress: source.remoteAddress,
    inLocalAddress: addressText(client.localAddress()),
    outLocalAddress: addressText(dial.localAddress()),
    outRemoteAddress: text,
  };
  if (relayStarted.hasSubscribers) relayStarted.publish(addresses);
  return addresses;
}

export function publishEnded(
  addresses: RelayAddresses | undefined,
  { bytesIn, bytesOut }: TcpRelay,
  durationMs: number,
  reason: RelayEnd,
): void {
  if (addresses === undefined || !relayEnded.hasSubscribers) return;
  relayEnded.publish({ ...addresses, bytesIn, bytesOut, durationMs, reason });
}

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
