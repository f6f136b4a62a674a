import { availableParallelism } from 'node:os';

/** Every limit and time of the data path in one place. Each has a flag and a line in docs/reference/limits.md. */
export interface EngineLimits {
  /** Concurrent TCP relays, of all service ports. Above it new connections are reset. */
  readonly maxConnections: number;
  /** Concurrent UDP sessions, of all service ports. Above it the least recently used one ends. */
  readonly maxUdpSessions: number;
  /** Descriptors reserved for everything but relays and sessions; see `defaultReserve`. */
  readonly reservedDescriptors: number;
  /** Time limit of each connection attempt, in order. Its length is the number of attempts. Milliseconds. */
  readonly connectTimeoutsMs: readonly number[];
  /** How long the second half of a relay may stay open without traffic after the first half closed. Milliseconds. */
  readonly halfCloseTimeoutMs: number;
  /** How long a TCP client waits for an endpoint where its service port has none; 0: it is reset. Milliseconds. */
  readonly holdTimeoutMs: number;
  /** Held TCP clients, of all service ports. Above it new ones are reset. */
  readonly maxHeldConnections: number;
  /** How long an established TCP relay may outlive its endpoint; 0: until a peer ends it. Milliseconds. */
  readonly endpointGraceMs: number;
  /** TCP keepalive: idle time before the first probe. Milliseconds. */
  readonly keepAliveMs: number;
  /** A UDP session ends after this long without a datagram either way. Milliseconds. */
  readonly udpIdleTimeoutMs: number;
  /** Memory for private bulk buffers of TCP relays, of all relays. Bytes. */
  readonly bulkBufferBudget: number;
  /** Requested receive and send buffer of UDP sockets. Bytes. */
  readonly udpSocketBuffer: number;
  /** Maximum bytes queued for one UDP socket while the kernel's buffer is full, or while the socket opens. */
  readonly udpSendQueueBytes: number;
  /** Sockets that a UDP listener on a wildcard address opens for single addresses of the host. */
  readonly udpWildcardSockets: number;
  /** Pending connections of one listener. */
  readonly backlog: number;
  /** Clients remembered by session affinity, for each service port. Above it the oldest is forgotten. */
  readonly maxAffinityClients: number;
  /** The same of all service ports together. Above it the least recently used client is forgotten. */
  readonly maxAffinityClientsTotal: number;
}

export const DEFAULT_LIMITS: EngineLimits = {
  maxConnections: 100_000,
  maxUdpSessions: 50_000,
  reservedDescriptors: 256,
  connectTimeoutsMs: [250, 500, 1000, 2000],
  halfCloseTimeoutMs: 60_000,
  holdTimeoutMs: 0,
  maxHeldConnections: 1000,
  endpointGraceMs: 0,
  keepAliveMs: 15_000,
  udpIdleTimeoutMs: 30_000,
  bulkBufferBudget: 128 * 1024 * 1024,
  udpSocketBuffer: 4 * 1024 * 1024,
  udpSendQueueBytes: 64 * 1024,
  udpWildcardSockets: 32,
  backlog: 4096,
  maxAffinityClients: 65_536,
  maxAffinityClientsTotal: 262_144,
};

/**
 * The public name of each limit. It is the name of its flag, of the `limit` label in the metrics and of
 * its line in docs/reference/limits.md.
 */
export const LIMIT_NAMES = {
  maxConnections: 'max-connections',
  maxUdpSessions: 'max-udp-sessions',
  reservedDescriptors: 'reserved-descriptors',
  connectTimeoutsMs: 'connect-timeouts',
  halfCloseTimeoutMs: 'half-close-timeout',
  holdTimeoutMs: 'hold-timeout',
  maxHeldConnections: 'max-held-connections',
  endpointGraceMs: 'endpoint-grace-period',
  keepAliveMs: 'tcp-keepalive',
  udpIdleTimeoutMs: 'udp-idle-timeout',
  bulkBufferBudget: 'bulk-buffer-budget',
  udpSocketBuffer: 'udp-socket-buffer',
  udpSendQueueBytes: 'udp-send-queue',
  udpWildcardSockets: 'udp-wildcard-sockets',
  backlog: 'backlog',
  maxAffinityClients: 'max-affinity-clients',
  maxAffinityClientsTotal: 'max-affinity-clients-total',
} as const satisfies Record<keyof EngineLimits, string>;

/**
 * Those that can change while an engine runs. A connection attempt keeps its timeouts; a half-closed connection takes
 * the new one within an eighth of the old one. A lower `maxConnections` closes no connection and rejects new ones until
 * it is met; a lower `maxUdpSessions` evicts the least recently used sessions with the next new client. A held client
 * keeps its timeout.
 */
export const LIVE_LIMITS = [
  'maxConnections',
  'maxUdpSessions',
  'connectTimeoutsMs',
  'halfCloseTimeoutMs',
  'holdTimeoutMs',
  'maxHeldConnections',
  'endpointGraceMs',
  'udpIdleTimeoutMs',
] as const satisfies readonly (keyof EngineLimits)[];

/** New values of some of them. */
export type LimitChange = Partial<Pick<EngineLimits, (typeof LIVE_LIMITS)[number]>>;

export type LimitName = (typeof LIMIT_NAMES)[keyof EngineLimits];

/** Limits that are for all service ports together. */
const DIVIDED = [
  'maxConnections',
  'maxHeldConnections',
  'maxUdpSessions',
  'maxAffinityClientsTotal',
  'bulkBufferBudget',
] as const satisfies readonly (keyof EngineLimits)[];

/** A worker's limits: its share of those for all service ports together, and the others unchanged. */
export function shareOfLimits<Limits extends Partial<EngineLimits>>(
  limits: Limits,
  workers: number,
): Limits {
  const parts = DIVIDED.flatMap((name) => {
    const limit = limits[name];
    return limit === undefined ? [] : [[name, Math.max(1, Math.floor(limit / workers))] as const];
  });
  return { ...limits, ...Object.fromEntries(parts) };
}

/** How many descriptors each worker may count with; the reserve is that of all of them. */
export function shareOfDescriptors(limit: number, reserve: number, workers: number): number {
  return reserve + Math.floor(Math.max(0, limit - reserve) / workers);
}

/** Maximum number of workers: each has its own socket for every listener. */
export const MAX_WORKERS = 64;

/** The number of workers for `auto`: one for each CPU that the process may use. */
export function autoWorkers(parallelism: number = availableParallelism()): number {
  return Math.min(parallelism, MAX_WORKERS);
}
