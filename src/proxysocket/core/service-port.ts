import type { RoundRobinBalancer } from '../../roundrobin/balancer.ts';
import type { BalancerEndpoint, Pick } from '../../roundrobin/endpoint.ts';
import type { Clock } from '../../util/clock.ts';
import {
  REJECT_COUNTERS,
  type ConnectErrorCause,
  type RejectReason,
  type ServicePortCounters,
} from '../counters.ts';
import { connectFailed, endpointPicked, rejected } from '../events.ts';
import type { EngineLimits } from '../limits.ts';
import type { Protocol, ProxyProtocolVersion, ServicePortSpec, Traffic } from '../spec.ts';
import type { ProcessDescriptors } from './descriptors.ts';

/** What the sockets of a service port share. It outlives its listeners while relays are open. */
export interface ServicePort {
  readonly name: string;
  readonly protocol: Protocol;
  readonly balancer: RoundRobinBalancer;
  readonly counters: ServicePortCounters;
  udpIdleTimeoutMs?: number | undefined;
  /** See `ServicePortSpec`; undefined where packets have other destinations than the service port's. */
  keepsClients?: ServicePortSpec['keepsClients'] | undefined;
  proxyProtocol?: ProxyProtocolVersion | undefined;
  /** Whether a PROXY protocol header has to come from a client of this address; undefined: from none. */
  announcesClients?: ((client: string) => boolean) | undefined;
  /** Traffic with drained endpoints, the reason why a client finds none. Absent: there are none. */
  drained?: ReadonlySet<Traffic>;
  /** It was removed; its listeners are about to close. */
  isGone?: true;
}

export interface EngineContext {
  readonly limits: EngineLimits;
  readonly clock: Clock;
  readonly descriptors: ProcessDescriptors;
}

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

/** Counts and publishes a failed attempt to reach an endpoint, and reports it to the balancer. */
export function attemptFailed(
  { name, counters, balancer }: ServicePort,
  endpoint: BalancerEndpoint,
  attempt: number,
  cause: ConnectErrorCause,
  error: Error,
): void {
  counters.connectErrors[cause] += 1;
  // Being out of descriptors or local ports is not the endpoint's fault.
  if (cause !== 'limit') balancer.connectFailed(endpoint, cause);
  if (!connectFailed.hasSubscribers) return;
  connectFailed.publish({ servicePort: name, endpoint: endpoint.text, attempt, cause, error });
}
