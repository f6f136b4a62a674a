/**
 * Events of the data path, published on diagnostics channels.
 *
 * The data path only publishes; logs, metrics and tests subscribe. An event is built only when its
 * channel has a subscriber, so guard every publish with `hasSubscribers`.
 */
import type { ErrorCode } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';
import type { ConnectErrorCause, RejectReason } from './counters.ts';
import type { LimitName } from './limits.ts';
import type { ListenSpec, Protocol } from './spec.ts';

/** Addresses are printed as `ip:port`, or `[ip]:port` for IPv6. */
interface TcpAccepted {
  servicePort: string;
  remoteAddress: string;
  localAddress: string;
}

interface EndpointPicked {
  servicePort: string;
  /** The client's `ip:port`. */
  sourceAddress: string;
  endpoint: string;
  /** Whether session affinity decided. */
  sticky: boolean;
  /** How many endpoints there were to choose from. */
  endpoints: number;
  /** 1 for the first attempt. */
  attempt: number;
}

interface ConnectFailed {
  servicePort: string;
  endpoint: string;
  attempt: number;
  cause: ConnectErrorCause;
  error: Error;
}

/** A connection was reset, or a datagram dropped, because no endpoint could serve it. */
export interface Rejected {
  servicePort: string;
  protocol: Protocol;
  remoteAddress: string;
  reason: RejectReason;
}

/** A TCP client is held because its service port has no endpoint. */
interface TcpHeld {
  servicePort: string;
  remoteAddress: string;
  /** Held clients of the service port in the same thread. */
  waiting: number;
}

export interface TcpHoldEnded extends TcpHeld {
  durationMs: number;
  /** `endpoint`: one was added. `service-gone`: the service port was removed, or no client is accepted any more. */
  reason: 'endpoint' | 'client-gone' | 'hold-timeout' | 'drained' | 'service-gone' | 'destroyed';
}

/** The four addresses of a relay, named as kube-proxy's winuserspace names them. */
export interface RelayAddresses {
  servicePort: string;
  endpoint: string;
  inRemoteAddress: string;
  inLocalAddress: string;
  outLocalAddress: string;
  outRemoteAddress: string;
}

export interface RelayEnded extends RelayAddresses {
  /** From the client to the endpoint. */
  bytesIn: number;
  /** From the endpoint to the client. */
  bytesOut: number;
  durationMs: number;
  /** `closed`: both sides finished. */
  reason:
    | 'closed'
    | 'client-reset'
    | 'endpoint-reset'
    | 'half-close-timeout'
    | 'endpoint-gone'
    | 'destroyed';
}

export interface UdpSessionStarted {
  servicePort: string;
  remoteAddress: string;
  endpoint: string;
}

export interface UdpSessionEnded extends UdpSessionStarted {
  datagramsIn: number;
  datagramsOut: number;
  reason: 'idle' | 'endpoint-gone' | 'icmp-error' | 'evicted' | 'service-gone' | 'destroyed';
}

export interface ListenerOpened {
  servicePort: string;
  protocol: Protocol;
  listen: ListenSpec;
}

interface ListenerFailed extends ListenerOpened {
  code: ErrorCode;
  error: Error;
  /** Milliseconds until the next attempt. */
  retryInMs: number;
}

interface LimitChanged {
  limit: LimitName;
  value: number;
  reached: boolean;
}

/** A source range of a listener cannot be read; it admits no client. */
interface SourceRangeInvalid {
  servicePort: string;
  range: string;
}

/**
 * Something went wrong inside an engine whose sockets are in threads of their own.
 *
 * - `worker-lost`: a thread has died with all its connections; another one replaces it.
 * - `fallback`: workers crashed too often, and the fallback engine takes over.
 * - `internal-error`: a bug in the program ended one connection.
 * - `events-dropped`: the event queue overflowed.
 */
export interface DataPlaneFault {
  what: 'worker-lost' | 'fallback' | 'internal-error' | 'events-dropped';
  error: Error;
}

export const tcpAccepted = typedChannel<TcpAccepted>('tcp:accepted');
export const endpointPicked = typedChannel<EndpointPicked>('endpoint:picked');
export const connectFailed = typedChannel<ConnectFailed>('endpoint:connect-failed');
export const rejected = typedChannel<Rejected>('client:rejected');
export const tcpHeld = typedChannel<TcpHeld>('tcp:held');
export const tcpHoldEnded = typedChannel<TcpHoldEnded>('tcp:hold-ended');
export const relayStarted = typedChannel<RelayAddresses>('tcp:relay-started');
export const relayEnded = typedChannel<RelayEnded>('tcp:relay-ended');
export const udpSessionStarted = typedChannel<UdpSessionStarted>('udp:session-started');
export const udpSessionEnded = typedChannel<UdpSessionEnded>('udp:session-ended');
export const listenerOpened = typedChannel<ListenerOpened>('listener:opened');
export const listenerClosed = typedChannel<ListenerOpened>('listener:closed');
export const listenerFailed = typedChannel<ListenerFailed>('listener:failed');
export const limitChanged = typedChannel<LimitChanged>('limit:changed');
export const sourceRangeInvalid = typedChannel<SourceRangeInvalid>('listener:source-range-invalid');
export const dataPlaneFault = typedChannel<DataPlaneFault>('engine:fault');
