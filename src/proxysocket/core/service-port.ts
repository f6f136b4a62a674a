import type { Balancer, BalancerEndpoint } from '../../roundrobin/types.ts';
import type { Clock } from '../../util/clock.ts';
import type { Family } from '../../util/family.ts';
import type { ServicePortCounters } from '../counters.ts';
import type { EndpointUse } from './endpoint-index.ts';
import type { NewProcess } from '../engine.ts';
import type { Inspectable } from '../inspect.ts';
import type { EngineLimits } from '../limits.ts';
import type {
  ListenSpec,
  Protocol,
  ProxyProtocolVersion,
  ServicePortSpec,
  Traffic,
} from '../spec.ts';
import type { SourceFilter } from './source-filter.ts';

/** What the sockets of a service port share. It outlives its listeners while relays are open. */
export interface ServicePort {
  /** `namespace/name:port`. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly balancer: Balancer;
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
  readonly descriptors: DescriptorBudget;
}

/** Accounts for the descriptors of relays and sessions. */
export interface DescriptorBudget {
  /** Takes `count` descriptors for a protocol, by default TCP; false if that would use the reserve or UDP's share. */
  acquire(count: number, protocol?: Protocol): boolean;
  release(count: number, protocol?: Protocol): void;
  /** Takes TCP descriptors for an optional use; false, without an event, if clients need them. */
  acquireSpare(count: number): boolean;
  releaseSpare(count: number): void;
  readonly used: number;
  /** How many may be used at most. */
  readonly capacity: number;
}

/** A socket that clients reach. One for each address, port and protocol; its service port may change. */
export interface Listener {
  readonly protocol: Protocol;
  readonly address: string;
  /** The actual port. */
  readonly boundPort: number;
  readonly family: Family;
  /** Hands the listener to a service port; new clients are served by it at once. */
  assign(owner: ServicePort, spec: ListenSpec): void;
  /**
   * Stops listening. TCP relays live on; UDP sessions end, since their answers leave through the
   * listener. Resolves when the port is free. Idempotent.
   */
  close(): Promise<void>;
}

/** Opens listeners of one protocol, and ends their connections. */
export interface Acceptor {
  /** Rejects with the operating system's error (`code` EADDRINUSE and so on). */
  listen(spec: ListenSpec, owner: ServicePort): Promise<Listener>;
  /** An endpoint of a service port was removed: end its UDP sessions now, its TCP relays after the grace period. */
  endpointGone(endpoint: BalancerEndpoint, owner: ServicePort): void;
  /** Replaces the listeners at shared sockets that hand clients to a service port. Absent: there are no such sockets. */
  listenShared?(listen: readonly ListenSpec[], owner: ServicePort): void;
  /** A service port has other endpoints than before. Absent: no client is held. */
  endpointsChanged?(owner: ServicePort): void;
  /** Times of `EngineContext.limits` have changed. Absent: they are read each time anyway. */
  limitsChanged?(): void;
  /** The service port was removed: end its UDP sessions, reset clients that wait; TCP relays continue. */
  servicePortGone(owner: ServicePort): void;
  /**
   * No client is accepted from now on; `newProcess` serves those of all listeners. Accepted connections stay open when
   * their listeners close. Absent: they do so anyway.
   */
  leave?(newProcess: NewProcess | undefined): void;
  /** Everything that waits for an endpoint, then what has one or is getting one, oldest first. Not to be kept. */
  connections?(): Iterable<Inspectable>;
  /** The open connections or sessions of an endpoint. */
  useOf?(endpoint: BalancerEndpoint): EndpointUse;
  /** Resolves when all accepted connections have ended. */
  drained(): Promise<void>;
  /**
   * Ends everything at once. Resolves when every socket is closed. Called again when sockets that were being opened
   * are open.
   */
  destroy(): Promise<void>;
}
