import type { RoundRobinBalancer } from '../../roundrobin/balancer.ts';
import type { Clock } from '../../util/clock.ts';
import type { ServicePortCounters } from '../counters.ts';
import type { EngineLimits } from '../limits.ts';
import type { Protocol, ProxyProtocolVersion, ServicePortSpec, Traffic } from '../spec.ts';
import type { ProcessDescriptors } from './descriptors.ts';
import type { SourceFilter } from './source-filter.ts';

/** What the sockets of a service port share. It outlives its listeners while relays are open. */
export interface ServicePort {
  /** `namespace/name:port`. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly balancer: RoundRobinBalancer;
  readonly counters: ServicePortCounters;
  /** Idle limit of UDP sessions, after overrides. Milliseconds. */
  udpIdleTimeoutMs: number;
  /** See `ServicePortSpec`; undefined where packets have other destinations than the service port's. */
  keepsClients?: ServicePortSpec['keepsClients'] | undefined;
  /** The version of the PROXY protocol that endpoints are sent; undefined: none. */
  proxyProtocol?: ProxyProtocolVersion | undefined;
  /** Whether a PROXY protocol header has to come from a client of this address; undefined: from none. */
  announcesClients?: SourceFilter | undefined;
  /** Traffic with drained endpoints, the reason why a client finds none. Absent: there are none. */
  drained?: ReadonlySet<Traffic>;
}

/** What the sockets of an engine share. */
export interface EngineContext {
  readonly limits: EngineLimits;
  readonly clock: Clock;
  readonly descriptors: ProcessDescriptors;
}
