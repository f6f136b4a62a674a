import { availableParallelism } from 'node:os';

interface Limit {
  /** Of its flag, of the `limit` label in the metrics and of its line in docs/reference/limits.md. */
  readonly name: string;
  readonly default: number | readonly number[];
  /** It can change while an engine runs. */
  readonly isLive?: true;
  /** It is for all service ports together, so each worker gets a share. */
  readonly isDivided?: true;
}

/**
 * Every limit and time of the data path. Those that can change: a connection attempt keeps its timeouts, and a held
 * client its own; a half-closed connection takes the new one within an eighth of the old one. A lower `maxConnections`
 * closes no connection and rejects new ones until it is met; a lower `maxUdpSessions` evicts the least recently used
 * sessions with the next new client.
 */
const LIMITS = {
  /** Concurrent TCP relays, of all service ports. Above it new connections are reset. */
  maxConnections: { name: 'max-connections', default: 100_000, isLive: true, isDivided: true },
  /** Concurrent UDP sessions, of all service ports. Above it the least recently used one ends. */
  maxUdpSessions: { name: 'max-udp-sessions', default: 50_000, isLive: true, isDivided: true },
  /** Descriptors reserved for everything but relays and sessions; see `defaultReserve`. */
  reservedDescriptors: { name: 'reserved-descriptors', default: 256 },
  /** Time limit of each connection attempt, in order. Its length is the number of attempts. Milliseconds. */
  connectTimeoutsMs: { name: 'connect-timeouts', default: [250, 500, 1000, 2000], isLive: true },
  /** How long the second half of a relay may stay open without traffic after the first half closed. Milliseconds. */
  halfCloseTimeoutMs: { name: 'half-close-timeout', default: 60_000, isLive: true },
  /** How long a TCP client waits for an endpoint where its service port has none; 0: it is reset. Milliseconds. */
  holdTimeoutMs: { name: 'hold-timeout', default: 0, isLive: true },
  /** Held TCP clients, of all service ports. Above it new ones are reset. */
  maxHeldConnections: {
    name: 'max-held-connections',
    default: 1000,
    isLive: true,
    isDivided: true,
  },
  /** How long an established TCP relay may outlive its endpoint; 0: until a peer ends it. Milliseconds. */
  endpointGraceMs: { name: 'endpoint-grace-period', default: 0, isLive: true },
  /** TCP keepalive: idle time before the first probe. Milliseconds. */
  keepAliveMs: { name: 'tcp-keepalive', default: 15_000 },
  /** A UDP session ends after this long without a datagram either way. Milliseconds. */
  udpIdleTimeoutMs: { name: 'udp-idle-timeout', default: 30_000, isLive: true },
  /** Memory for private bulk buffers of TCP relays, of all relays. Bytes. */
  bulkBufferBudget: { name: 'bulk-buffer-budget', default: 128 * 1024 * 1024, isDivided: true },
  /** Requested receive and send buffer of UDP sockets. Bytes. */
  udpSocketBuffer: { name: 'udp-socket-buffer', default: 4 * 1024 * 1024 },
  /** Maximum bytes queued for one UDP socket while the kernel's buffer is full. */
  udpSendQueueBytes: { name: 'udp-send-queue', default: 64 * 1024 },
  /** Sockets that a UDP listener on a wildcard address opens for single addresses of the host. */
  udpWildcardSockets: { name: 'udp-wildcard-sockets', default: 32 },
  /** Pending connections of one listener. */
  backlog: { name: 'backlog', default: 4096 },
  /** Clients remembered by session affinity, for each service port. Above it the oldest is forgotten. */
  maxAffinityClients: { name: 'max-affinity-clients', default: 65_536 },
  /** The same of all service ports together. Above it the least recently used client is forgotten. */
  maxAffinityClientsTotal: {
    name: 'max-affinity-clients-total',
    default: 262_144,
    isDivided: true,
  },
} as const satisfies Record<string, Limit>;

type Limits = typeof LIMITS;

export type EngineLimits = {
  readonly [Name in keyof Limits]: Limits[Name]['default'] extends number
    ? number
    : readonly number[];
};

type LiveLimit = {
  [Name in keyof Limits]: Limits[Name] extends { readonly isLive: true } ? Name : never;
}[keyof Limits];

export type LimitChange = Partial<Pick<EngineLimits, LiveLimit>>;

const ALL = Object.entries<Limit>(LIMITS) as [keyof EngineLimits, Limit][];

export const DEFAULT_LIMITS = Object.fromEntries(
  ALL.map(([key, limit]) => [key, limit.default]),
) as unknown as EngineLimits;

export const LIMIT_NAMES = Object.fromEntries(ALL.map(([key, { name }]) => [key, name])) as {
  readonly [Name in keyof Limits]: Limits[Name]['name'];
};

export type LimitName = Limits[keyof Limits]['name'];

export const LIVE_LIMITS = ALL.filter(([, { isLive }]) => isLive).map(([key]) => key as LiveLimit);

/** A worker's limits: its share of those for all service ports together, and the others unchanged. */
export function shareOfLimits<Limits extends Partial<EngineLimits>>(
  limits: Limits,
  workers: number,
): Limits {
  const parts = ALL.flatMap(([key, { isDivided }]) => {
    const limit = limits[key];
    if (isDivided === undefined || typeof limit !== 'number') return [];
    return [[key, Math.max(1, Math.floor(limit / workers))] as const];
  });
  return { ...limits, ...Object.fromEntries(parts) };
}

/** Maximum number of workers: each has its own socket for every listener. */
export const MAX_WORKERS = 64;

/** The number of workers for `auto`: one for each CPU that the process may use. */
export function autoWorkers(parallelism: number = availableParallelism()): number {
  return Math.min(parallelism, MAX_WORKERS);
}
