import type { BalancerEndpoint, Pick } from '../../../roundrobin/types.ts';
import {
  endpointPicked,
  relayEnded,
  relayStarted,
  type RelayAddresses,
  type RelayEnded,
} from '../../events.ts';
import type { ServicePort } from '../../core/service-port.ts';
import { addressText } from '../../tcp/addresses.ts';
import type { SocketAddress } from '../sys/address.ts';
import type { Sockets } from '../sys/sockets.ts';

/** An address that may not be known, because whoever had it is gone. */
export type MaybeAddress = Partial<SocketAddress>;

const UNKNOWN: MaybeAddress = {};

/** Tells which endpoint was chosen, if anybody listens. `source` costs a system call. */
export function tellPicked(
  owner: ServicePort,
  { endpoint, sticky }: Pick,
  attempt: number,
  source: () => MaybeAddress,
): void {
  if (!endpointPicked.hasSubscribers) return;
  endpointPicked.publish({
    servicePort: owner.name,
    sourceAddress: addressText(source()),
    endpoint: endpoint.text,
    sticky,
    endpoints: owner.balancer.size,
    attempt,
  });
}

/** The four addresses of a relay; undefined when nobody listens, since they cost three system calls. */
export function relayAddresses(
  sockets: Sockets,
  owner: ServicePort,
  endpoint: BalancerEndpoint,
  fds: { readonly client: number; readonly endpoint: number },
  source: () => MaybeAddress,
): RelayAddresses | undefined {
  if (!relayStarted.hasSubscribers && !relayEnded.hasSubscribers) return undefined;
  return {
    servicePort: owner.name,
    endpoint: endpoint.text,
    inRemoteAddress: addressText(source()),
    inLocalAddress: addressText(sockets.localAddress(fds.client) ?? UNKNOWN),
    outLocalAddress: addressText(sockets.localAddress(fds.endpoint) ?? UNKNOWN),
    outRemoteAddress: endpoint.text,
  };
}

export function tellStarted(addresses: RelayAddresses | undefined): void {
  if (addresses !== undefined && relayStarted.hasSubscribers) relayStarted.publish(addresses);
}

export function tellEnded(
  addresses: RelayAddresses | undefined,
  bytes: { readonly in: number; readonly out: number },
  durationMs: number,
  reason: RelayEnded['reason'],
): void {
  if (addresses === undefined || !relayEnded.hasSubscribers) return;
  relayEnded.publish({ ...addresses, bytesIn: bytes.in, bytesOut: bytes.out, durationMs, reason });
}
