import type { Protocol } from './spec.ts';

/** Queries about single connections. An engine iterates over them only for a query. */
export interface InspectQuery {
  /** Service ports whose connections and endpoints to return; absent: connections of all, and no endpoints. */
  readonly servicePorts?: readonly string[];
  readonly failing?: boolean;
  readonly maxConnections: number;
}

export interface ConnectionSnapshot {
  readonly servicePort: string;
  readonly protocol: Protocol;
  readonly client: string;
  readonly endpoint: string;
  /** `held`: it waits for an endpoint. */
  readonly state: 'held' | 'connecting' | 'open';
  /** TCP: since it was opened or held. UDP: since its last datagram. Milliseconds. */
  readonly ageMs: number;
  /** From the client. TCP: bytes. UDP: datagrams. */
  readonly in: number;
  readonly out: number;
}

/** An endpoint as the balancer of its service port sees it. */
export interface EndpointSnapshot {
  readonly servicePort: string;
  readonly endpoint: string;
  /** Connections and sessions that use it, or try to. */
  readonly active: number;
  /** The last attempt to connect failed; only a successful one clears it. */
  readonly failing: boolean;
  /** For how long, since the first failure after the last success. Milliseconds. */
  readonly failingMs?: number | undefined;
  /** TCP connections accepted by it, and UDP sessions opened to it. */
  readonly connections: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly errors: number;
  /** Smoothed over the last connections. Undefined: there was none, or it is UDP. */
  readonly connectMs?: number | undefined;
  /** When an attempt last succeeded. Milliseconds ago. */
  readonly connectedAgoMs?: number | undefined;
  readonly lastError?: { readonly cause: string; readonly agoMs: number } | undefined;
}

export interface Inspection {
  readonly connections: readonly ConnectionSnapshot[];
  readonly matched: number;
  /** Whether every connection was inspected; there may be too many for one query. */
  readonly complete: boolean;
  readonly endpoints: readonly EndpointSnapshot[];
  readonly failing?: FailingEndpoints;
}

/** Endpoints to which the last connection failed, by service port. Without figures, as there may be very many. */
export type FailingEndpoints = ReadonlyMap<string, ReadonlySet<string>>;

export const NOTHING: Inspection = { connections: [], matched: 0, complete: true, endpoints: [] };

/** Connections of each protocol that one query inspects: some milliseconds of work, which block the engine. */
export const MAX_INSPECTED = 50_000;

export const MAX_LISTED = 10_000;

export interface Inspectable {
  /** Undefined when it has ended. `now`: by the clock of its engine. */
  inspect(now: number): ConnectionSnapshot | undefined;
  readonly owner: { readonly name: string };
}

/** Inspects connections, oldest first, as far as `query` and the limits allow. */
export function inspectAll(
  connections: Iterable<Inspectable>,
  query: InspectQuery,
  now: number,
): Omit<Inspection, 'endpoints'> {
  const wanted = query.servicePorts && new Set(query.servicePorts);
  const limit = Math.min(query.maxConnections, MAX_LISTED);
  const found: ConnectionSnapshot[] = [];
  let matched = 0;
  let looked = 0;
  for (const connection of connections) {
    looked += 1;
    if (looked > MAX_INSPECTED) return { connections: found, matched, complete: false };
    if (wanted !== undefined && !wanted.has(connection.owner.name)) continue;
    matched += 1;
    // Reading the addresses of a connection costs one or two system calls.
    const snapshot = found.length < limit ? connection.inspect(now) : undefined;
    if (snapshot !== undefined) found.push(snapshot);
  }
  return { connections: found, matched, complete: true };
}

/** Of the failing endpoints of several workers, only the service ports are complete. */
export function mergeInspections(parts: readonly Inspection[], maxConnections: number): Inspection {
  const endpoints = Map.groupBy(
    parts.flatMap((part) => part.endpoints),
    ({ servicePort, endpoint }) => `${servicePort} ${endpoint}`,
  );
  return {
    connections: parts
      .flatMap(({ connections }) => connections)
      .sort((one, other) => other.ageMs - one.ageMs)
      .slice(0, maxConnections),
    matched: parts.reduce((sum, { matched }) => sum + matched, 0),
    complete: parts.every(({ complete }) => complete),
    endpoints: Array.from(endpoints.values(), (same) => same.reduce(mergeEndpoint)),
    failing: new Map(parts.flatMap(({ failing }) => [...(failing ?? [])])),
  };
}

/** Merges what two workers know about an endpoint: sums, and the latest evidence. */
function mergeEndpoint(one: EndpointSnapshot, other: EndpointSnapshot): EndpointSnapshot {
  const connections = one.connections + other.connections;
  const connectMs = ({ connectMs: ms, connections: weight }: EndpointSnapshot): number =>
    ((ms ?? 0) * weight) / Math.max(connections, 1);
  const connectedAgoMs = least(one.connectedAgoMs, other.connectedAgoMs);
  const [lastError] = [one.lastError, other.lastError]
    .filter((error) => error !== undefined)
    .sort((a, b) => a.agoMs - b.agoMs);
  const [failedAgoMs] = [one, other]
    .flatMap(({ failing: isFailing, lastError: last }) => (isFailing && last ? [last.agoMs] : []))
    .sort((a, b) => a - b);
  const failing =
    failedAgoMs !== undefined && (connectedAgoMs === undefined || failedAgoMs < connectedAgoMs);
  const longest = Math.max(one.failingMs ?? 0, other.failingMs ?? 0);
  return {
    servicePort: one.servicePort,
    endpoint: one.endpoint,
    active: one.active + other.active,
    connections,
    bytesIn: one.bytesIn + other.bytesIn,
    bytesOut: one.bytesOut + other.bytesOut,
    errors: one.errors + other.errors,
    connectMs:
      one.connectMs === undefined && other.connectMs === undefined
        ? undefined
        : connectMs(one) + connectMs(other),
    connectedAgoMs,
    lastError,
    failing,
    failingMs: failing ? Math.min(longest, connectedAgoMs ?? longest) : undefined,
  };
}

function least(one: number | undefined, other: number | undefined): number | undefined {
  return one === undefined || other === undefined ? (one ?? other) : Math.min(one, other);
}

export function failingAmong(endpoints: readonly EndpointSnapshot[]): FailingEndpoints {
  const failing = endpoints.filter((each) => each.failing);
  const groups = Map.groupBy(failing, ({ servicePort }) => servicePort);
  return new Map(
    Array.from(groups, ([name, group]) => [name, new Set(group.map(({ endpoint }) => endpoint))]),
  );
}
