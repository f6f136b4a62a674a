/**
 * The responses of the admin API, as plain data. docs/reference/status.md describes every field; fields may be added,
 * existing ones keep their meaning.
 */
import type { ConnectErrorCause } from '../proxysocket/counters.ts';
import type { ConnectionSnapshot, EndpointSnapshot } from '../proxysocket/inspect.ts';
import type { LimitName } from '../proxysocket/limits.ts';
import type { ListenSpec, Protocol } from '../proxysocket/spec.ts';
import type { Drain } from '../proxier/drains.ts';
import type { ServiceState } from '../observe/service-state.ts';
import type { ServiceSummary } from '../observe/service-summary.ts';
import type { Traffic } from '../observe/traffic.ts';
import type { HealthProblem, Verdict } from '../observe/verdict.ts';

export type { ServiceState, Traffic, Verdict };

/** One service port in a list. */
export interface ServiceRow {
  /** `namespace/name:port`, or `namespace/name` for an unnamed port. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly state: ServiceState;
  /** Addresses that clients use, as `ip:port`; a node port as `*:port`. */
  readonly addresses: readonly string[];
  readonly endpoints: {
    readonly total: number;
    /** Those that may be used for some traffic, are not drained, and accepted the last connection. */
    readonly usable: number;
  };
  readonly listeners: { readonly open: number; readonly failed: number };
  /** TCP connections and UDP sessions now. */
  readonly active: number;
  /** Since the start of the process or the service port. */
  readonly totals: Traffic;
  /** Per second, from the last two samples. */
  readonly rates: Traffic;
  /** Bytes per second over the last minutes, oldest first, in few numbers; absent without traffic. */
  readonly spark?: readonly number[];
}

/** A page of service ports. */
export interface ServicesView {
  /** Number of all service ports. */
  readonly total: number;
  /** Number of those that match the search and the state. */
  readonly matched: number;
  readonly offset: number;
  readonly rows: readonly ServiceRow[];
  /** Number of service ports in each state, before the search. */
  readonly states: Readonly<Record<ServiceState, number>>;
}

/**
 * - `ready`: gets its share of new connections.
 * - `failing`: the last connection to it failed; it is skipped for a while after each failure.
 * - `drained`: an operator drains it; gets no new connections.
 * - `unused`: not used: terminating, or excluded by a traffic policy.
 */
export type EndpointState = 'ready' | 'failing' | 'drained' | 'unused';

/** An endpoint; without figures if the engine does not know it. */
export interface EndpointView extends Partial<EndpointFigures> {
  /** `ip:port` or `[ip]:port`. */
  readonly address: string;
  readonly state: EndpointState;
  /** Kinds of traffic that it may be used for. */
  readonly traffic: readonly ('internal' | 'external')[];
}

/** The figures of one endpoint since it joined its service port. */
export interface EndpointFigures extends Pick<
  EndpointSnapshot,
  'active' | 'connections' | 'bytesIn' | 'bytesOut' | 'errors'
> {
  /** Time to connect, smoothed over the last connections. Seconds; null: none yet, or UDP. */
  readonly connectSeconds: number | null;
  /** When it began to fail; null: it does not. ISO 8601. */
  readonly failingSince: string | null;
  /** The last failed attempt. `cause`: as in the metric of connect errors; `at`: ISO 8601. */
  readonly lastError: { readonly cause: string; readonly at: string } | null;
}

export interface ListenerView {
  readonly address: string;
  readonly traffic: ListenSpec['traffic'];
  readonly state: 'listening' | 'failed';
  /** Why it could not be opened. */
  readonly code?: string;
  readonly cause?: string;
}

/** Connect times: the upper bound of the bucket in which the quantile lies. Seconds. */
export interface ConnectTimes {
  readonly count: number;
  readonly p50: number | null;
  readonly p90: number | null;
  readonly p99: number | null;
}

/** Details of one service port. */
export interface ServiceDetails extends ServiceRow {
  readonly affinity: 'none' | { readonly clientIP: number };
  readonly listenersList: readonly ListenerView[];
  /** At most 1,000. */
  readonly endpointsList: readonly EndpointView[];
  readonly connectTimes: ConnectTimes;
  readonly connectErrors: Readonly<Partial<Record<ConnectErrorCause, number>>>;
  /** Every other counter that is not zero. */
  readonly counters: Readonly<Record<string, number>>;
  readonly problems: readonly ProblemView[];
}

export interface ProblemView extends HealthProblem {
  readonly message: string;
  /** The first service port that it concerns. */
  readonly servicePort: string | null;
}

export interface StatusView {
  readonly process: {
    readonly pid: number;
    readonly version: string;
    readonly node: string;
    readonly platform: string;
    /** ISO 8601. */
    readonly startedAt: string;
    readonly uptimeSeconds: number;
    /** The command: source and sink, such as `file to-userspace`. */
    readonly command: string;
    readonly nodeName: string | null;
    /** The process that has taken over from this one, which only serves its open connections; null: none. */
    readonly successor: number | null;
    readonly rssBytes: number;
  };
  /** The verdict on the process. */
  readonly health: Verdict;
  /** Where the state comes from; null before the first report of the source. */
  readonly source: SourceView | null;
  readonly logLevel: number;
  /** Null when this process does not proxy. */
  readonly proxy: ProxyView | null;
}

export interface SourceView {
  /** For people, with the address or path. */
  readonly name: string;
  /** Whether it is connected, or its file valid. */
  readonly connected: boolean;
  /** When it last sent a complete change set; null: not yet. ISO 8601. */
  readonly syncedAt: string | null;
  readonly syncAgeSeconds: number | null;
}

export interface ProxyView extends ServiceSummary {
  readonly engine: string;
  readonly portal: string;
  readonly rates: Traffic;
  readonly limits: readonly {
    readonly limit: LimitName;
    readonly used: number;
    readonly max: number;
  }[];
  readonly problems: readonly ProblemView[];
  readonly drains: readonly Drain[];
}

/** Samples over time, oldest first; all lists are equally long. Rates are per second. */
export interface HistoryView extends Readonly<Record<keyof Traffic | 'active', readonly number[]>> {
  /** Null: all service ports together. */
  readonly service: string | null;
  readonly intervalSeconds: number;
}

export interface ConnectionView extends Omit<ConnectionSnapshot, 'ageMs'> {
  readonly ageSeconds: number;
}

export interface ConnectionsView {
  /** Inspected connections that match. There may be more if `complete` is false. */
  readonly matched: number;
  readonly complete: boolean;
  /** Oldest first, up to the limit of the query. */
  readonly connections: readonly ConnectionView[];
}
