import type { BalancerEndpoint, Pick } from '../../roundrobin/types.ts';
import { REJECT_COUNTERS, type ConnectErrorCause, type RejectReason } from '../counters.ts';
import { connectFailed, endpointPicked, rejected } from '../events.ts';
import type { ServicePort } from './service-port.ts';

/** Has the client's `ip:port`; reading it may cost a system call. */
export interface Client {
  readonly remoteAddress: string;
}

/** Counts a rejected client. Without a client its address is not known. */
export function countRejected(owner: ServicePort, reason: RejectReason, client?: Client): void {
  const { name, protocol, counters } = owner;
  counters[REJECT_COUNTERS[reason]] += 1;
  if (!rejected.hasSubscribers) return;
  const remoteAddress = client?.remoteAddress ?? '';
  rejected.publish({ servicePort: name, protocol, remoteAddress, reason });
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
