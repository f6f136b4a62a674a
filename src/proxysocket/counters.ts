import type { Traffic } from './spec.ts';

/**
 * Why connecting to an endpoint failed: a small fixed set, fit for a metric label. `reset`: the endpoint's host took
 * the connection and reset it before anything went through. `loop`: the endpoint is the service's own address.
 */
export const CONNECT_ERROR_CAUSES = [
  'refused',
  'timeout',
  'unreachable',
  'reset',
  'loop',
  'limit',
  'other',
] as const;
export type ConnectErrorCause = (typeof CONNECT_ERROR_CAUSES)[number];

/** Upper bounds of the connect-time histogram, in seconds. The last bucket is open. */
export const CONNECT_SECONDS_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5,
] as const;

/**
 * Counters of one service port: plain numbers, increased in the data path and read at scrape time. They survive
 * changes of the service port and end with it.
 */
export interface ServicePortCounters {
  /** TCP connections accepted; UDP sessions begun. */
  connections: number;
  /** TCP relays, or UDP sessions, that exist now. */
  active: number;
  /** From clients to endpoints. */
  bytesIn: number;
  /** From endpoints to clients. */
  bytesOut: number;
  datagramsIn: number;
  datagramsOut: number;
  /** Datagrams that could not be passed on, either way. */
  datagramsDropped: number;
  /** UDP sessions evicted to make room for a new one. */
  sessionsEvicted: number;
  /** Attempts after the first of a connection. */
  retries: number;
  /** Connections reset because there was no endpoint. */
  rejectedNoEndpoint: number;
  /** Clients rejected because all endpoints that they could have are drained. */
  rejectedDrained: number;
  /** Connections reset because no endpoint accepted. */
  rejectedConnectFailed: number;
  /** Connections reset because a limit was reached. */
  rejectedLimit: number;
  /** Connections reset, or datagrams dropped, because the client is outside the source ranges. */
  rejectedSource: number;
  /** Connections reset because no endpoint came while they were held. */
  rejectedHoldTimeout: number;
  /** Connections reset because no valid PROXY protocol header came. */
  rejectedProxyHeader: number;
  /** TCP clients that are held now. */
  held: number;
  /** TCP clients that were held. */
  heldTotal: number;
  /** Relays ended because the second half stayed open too long after the first had closed. */
  halfCloseTimeouts: number;
  /** UDP sessions ended because they were idle. */
  idleTimeouts: number;
  /** Failed attempts, by cause. */
  connectErrors: Record<ConnectErrorCause, number>;
  /** Connect times: a count for each bucket (one more than there are bounds) and the sum in seconds. */
  connectSeconds: { readonly counts: number[]; sum: number };
}

/** Why a client is rejected, and its counter. */
export const REJECT_COUNTERS = {
  'no-endpoint': 'rejectedNoEndpoint',
  drained: 'rejectedDrained',
  'connect-failed': 'rejectedConnectFailed',
  limit: 'rejectedLimit',
  source: 'rejectedSource',
  'hold-timeout': 'rejectedHoldTimeout',
  'proxy-header': 'rejectedProxyHeader',
} as const satisfies Record<string, keyof ServicePortCounters>;
export type RejectReason = keyof typeof REJECT_COUNTERS;

/** `no-endpoint`, or more exactly `drained`. */
export function rejectReason(
  { drained }: { readonly drained?: ReadonlySet<Traffic> },
  traffic: Traffic,
  reason: RejectReason,
): RejectReason {
  return reason === 'no-endpoint' && drained?.has(traffic) === true ? 'drained' : reason;
}

const NO_COUNTS = Array.from({ length: CONNECT_SECONDS_BUCKETS.length + 1 }, () => 0);

/** All zero. */
export function newCounters(): ServicePortCounters {
  return {
    connections: 0,
    active: 0,
    bytesIn: 0,
    bytesOut: 0,
    datagramsIn: 0,
    datagramsOut: 0,
    datagramsDropped: 0,
    sessionsEvicted: 0,
    retries: 0,
    rejectedNoEndpoint: 0,
    rejectedDrained: 0,
    rejectedConnectFailed: 0,
    rejectedLimit: 0,
    rejectedSource: 0,
    rejectedHoldTimeout: 0,
    rejectedProxyHeader: 0,
    held: 0,
    heldTotal: 0,
    halfCloseTimeouts: 0,
    idleTimeouts: 0,
    connectErrors: {
      refused: 0,
      timeout: 0,
      unreachable: 0,
      reset: 0,
      loop: 0,
      limit: 0,
      other: 0,
    },
    connectSeconds: {
      counts: NO_COUNTS.slice(),
      sum: 0,
    },
  };
}

/**
 * The sum of all errors: failed attempts, and rejected clients. One by one, since looking
 * properties up by name takes ten times as long, and this runs often, for every service port.
 */
export function errorsIn(counters: ServicePortCounters): number {
  const { connectErrors: by } = counters;
  return (
    by.refused +
    by.timeout +
    by.unreachable +
    by.reset +
    by.loop +
    by.limit +
    by.other +
    counters.rejectedNoEndpoint +
    counters.rejectedDrained +
    counters.rejectedConnectFailed +
    counters.rejectedLimit +
    counters.rejectedSource +
    counters.rejectedHoldTimeout +
    counters.rejectedProxyHeader
  );
}

/** Records one successful connect in the histogram. */
export function observeConnectSeconds(counters: ServicePortCounters, seconds: number): void {
  const { counts } = counters.connectSeconds;
  let bucket = CONNECT_SECONDS_BUCKETS.findIndex((bound) => seconds <= bound);
  if (bucket === -1) bucket = CONNECT_SECONDS_BUCKETS.length;
  counts[bucket] = (counts[bucket] ?? 0) + 1;
  counters.connectSeconds.sum += seconds;
}

/** A counter with a single value. */
type PlainCounter = Exclude<keyof ServicePortCounters, 'connectErrors' | 'connectSeconds'>;

export const PLAIN_COUNTERS: readonly PlainCounter[] = Object.entries(newCounters())
  .filter(([, value]) => typeof value === 'number')
  .map(([name]) => name as PlainCounter);

/** Gauges: current numbers, which can also decrease. */
export const GAUGE_COUNTERS = ['active', 'held'] as const satisfies readonly PlainCounter[];

/** A summary of all service ports: while it stays the same, nothing has changed. */
export interface Activity {
  /** With several workers, of each of them. */
  readonly servicePorts: number;
  /** The sum of all counters of events, bytes and datagrams. */
  readonly counted: number;
  /** Relays and UDP sessions that exist now. */
  readonly active: number;
}

/** All counters of a service port, without gauges. One by one, for the reason of `errorsIn`. */
export function countedIn(counters: ServicePortCounters): number {
  return (
    counters.connections +
    counters.bytesIn +
    counters.bytesOut +
    counters.datagramsIn +
    counters.datagramsOut +
    counters.datagramsDropped +
    counters.sessionsEvicted +
    counters.retries +
    counters.heldTotal +
    counters.halfCloseTimeouts +
    counters.idleTimeouts +
    errorsIn(counters)
  );
}

export function isSameActivity(one: Activity, other: Activity): boolean {
  return (
    one.servicePorts === other.servicePorts &&
    one.counted === other.counted &&
    one.active === other.active
  );
}
