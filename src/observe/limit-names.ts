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

/** Names that events use for limits that are not one number of `EngineLimits`, to the flag behind them. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  descriptors: LIMIT_NAMES.reservedDescriptors,
  'bulk-buffers': LIMIT_NAMES.bulkBufferBudget,
};

/** The public name of a limit that an event tells of. */
export function limitName(limit: string): string {
  if (isKey(limit)) return LIMIT_NAMES[limit];
  return Object.hasOwn(OTHER_NAMES, limit) ? (OTHER_NAMES[limit] ?? limit) : limit;
}

function isKey(limit: string): limit is keyof EngineLimits {
  return Object.hasOwn(LIMIT_NAMES, limit);
}
