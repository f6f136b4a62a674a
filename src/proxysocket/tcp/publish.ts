import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import { formatHostPort } from '../../util/host-port.ts';
import type { Client, ServicePort } from '../core/service-port.ts';
import { relayEnded, relayStarted, type RelayAddresses } from '../events.ts';
import type { ByteCounters, KnownAddress, RelayEnd, TcpClient, TcpDial } from './transport.ts';

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
  { bytesIn, bytesOut }: Readonly<ByteCounters>,
  durationMs: number,
  reason: RelayEnd,
): void {
  if (addresses === undefined || !relayEnded.hasSubscribers) return;
  relayEnded.publish({ ...addresses, bytesIn, bytesOut, durationMs, reason });
}

/** `ip:port` or `[ip]:port`; empty when it is not known. */
export function addressText({ address, port }: KnownAddress): string {
  return address === undefined || port === undefined ? '' : formatHostPort({ host: address, port });
}
