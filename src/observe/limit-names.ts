import type { EngineLimits } from '../proxysocket/limits.ts';

/**
 * The public name of each limit of the data path. It is the name of its flag, of the `limit` label in
 * the metrics and of its line in docs/limits.md.
 */
export const LIMIT_NAMES = {
  maxConnections: 'max-connections',
  maxUdpSessions: 'max-udp-sessions',
  reservedDescriptors: 'reserved-descriptors',
  connectTimeoutsMs: 'connect-timeouts',
  halfCloseTimeoutMs: 'half-close-timeout',
  endpointGraceMs: 'endpoint-grace-period',
  keepAliveMs: 'tcp-keepalive',
  udpIdleTimeoutMs: 'udp-idle-timeout',
  bulkBufferBudget: 'bulk-buffer-budget',
  udpSocketBuffer: 'udp-socket-buffer',
  udpSendQueueBytes: 'udp-send-queue',
  udpWildcardSockets: 'udp-wildcard-sockets',
  backlog: 'backlog',
  maxAffinityClients: 'max-affinity-clients',
} as const satisfies Record<keyof EngineLimits, string>;

/** The public name of a limit that an event tells of; names that are public already stay as they are. */
export function limitName(limit: string): string {
  return isKey(limit) ? LIMIT_NAMES[limit] : limit;
}

function isKey(limit: string): limit is keyof EngineLimits {
  return Object.hasOwn(LIMIT_NAMES, limit);
}
