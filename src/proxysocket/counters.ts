import type { Traffic } from './spec.ts';

/** Failed attempts to connect to an endpoint, by cause: a small fixed set, fit for a metric label. */
const NO_ERRORS = {
  refused: 0,
  timeout: 0,
  unreachable: 0,
  /** The endpoint's host took the connection and reset it before anything went through. */
  reset: 0,
  /** The endpoint is the service's own address. */
  loop: 0,
  limit: 0,
  other: 0,
};
export type ConnectErrorCause = keyof typeof NO_ERRORS;
export const CONNECT_ERROR_CAUSES = Object.keys(NO_ERRORS) as readonly ConnectErrorCause[];

/** Upper bounds of the connect-time histogram, in seconds. The last bucket is open. */
export const CONNECT_SECONDS_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5,
] as const;

const NO_COUNTS = Array.from({ length: CONNECT_SECONDS_BUCKETS.length + 1 }, () => 0);

export function newCounters() {
  return {
    /** TCP connections accepted; UDP sessions begun. */
    connections: 0,
    /** TCP relays, or UDP sessions, that exist now. */
    active: 0,
    /** From clients to endpoints. */
    bytesIn: 0,
    /** From endpoints to clients. */
    bytesOut: 0,
    datagramsIn: 0,
    datagramsOut: 0,
    /** Datagrams that could not be passed on, either way. */
    datagramsDropped: 0,
    sessionsEvicted: 0,
    /** Attempts after the first of a connection. */
    retries: 0,
    rejectedNoEndpoint: 0,
    /** Clients rejected because all endpoints that they could have are drained. */
    rejectedDrained: 0,
    /** Connections reset because no endpoint accepted. */
    rejectedConnectFailed: 0,
    rejectedLimit: 0,
    /** Connections reset, or datagrams dropped, because the client is outside the source ranges. */
    rejectedSource: 0,
    /** Connections reset because no endpoint came while they were held. */
    rejectedHoldTimeout: 0,
    /** Connections reset because no valid PROXY protocol header came. */
    rejectedProxyHeader: 0,
    /** TCP clients that are held now. */
    held: 0,
    heldTotal: 0,
    /** Relays ended because the second half stayed open too long after the first had closed. */
    halfCloseTimeouts: 0,
    idleTimeouts: 0,
    connectErrors: { ...NO_ERRORS },
    /** Connect times: a count for each bucket (one more than there are bounds) and the sum in seconds. */
    connectSeconds: { counts: NO_COUNTS.slice(), sum: 0 },
  };
}

/** Counters of one service port, read at scrape time. They survive its changes and end with it. */
export type ServicePortCounters = ReturnType<typeof newCounters>;

/** Those of a service port that has counted nothing. */
export const UNUSED: ServicePortCounters = Object.freeze(newCounters());

/**
 * Returns where a service port counts. `slot`: see `EngineChange`. `previous`: where relays count that it has had before it
 * was removed; it counts on there if that is the same slot.
 */
export type NewCounters = (
  name: string,
  slot: number | undefined,
  previous?: ServicePortCounters,
) => ServicePortCounters;

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

/** The sum of all errors: failed attempts, and rejected clients. */
export function errorsIn(counters: ServicePortCounters): number {
  return failedIn(counters) + sumOf(counters, Object.values(REJECT_COUNTERS));
}

function failedIn({ connectErrors }: ServicePortCounters): number {
  return sumOf(connectErrors, CONNECT_ERROR_CAUSES);
}

function sumOf<K extends string>(
  counters: Readonly<Record<K, number>>,
  names: readonly K[],
): number {
  let sum = 0;
  for (const name of names) sum += counters[name];
  return sum;
}

export function observeConnectSeconds(counters: ServicePortCounters, seconds: number): void {
  const { counts } = counters.connectSeconds;
  let bucket = CONNECT_SECONDS_BUCKETS.findIndex((bound) => seconds <= bound);
  if (bucket === -1) bucket = CONNECT_SECONDS_BUCKETS.length;
  counts[bucket] = (counts[bucket] ?? 0) + 1;
  counters.connectSeconds.sum += seconds;
}

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
  readonly active: number;
}

const COUNTED = PLAIN_COUNTERS.filter((name) => !GAUGE_COUNTERS.some((gauge) => gauge === name));

/** All counters of a service port, without gauges. */
export function countedIn(counters: ServicePortCounters): number {
  if (counters === UNUSED) return 0;
  return sumOf(counters, COUNTED) + failedIn(counters);
}
