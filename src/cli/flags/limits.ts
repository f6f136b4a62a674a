import { defaultReserve, processDescriptorLimit } from '../../proxysocket/core/descriptors.ts';
import {
  DEFAULT_LIMITS,
  LIMIT_NAMES,
  type EngineLimits,
  type LimitName,
} from '../../proxysocket/limits.ts';
import { duration, durations, integer, size } from './kinds.ts';
import { flag, group, type FlagSpec, type FlagValues } from './table.ts';

const LIMITS = 'Limits';
const TIMES = 'Times';

/** One flag for each limit of the data path; the names are those of the metrics and of docs/reference/limits.md. */
export const LIMIT_FLAGS = {
  ...group(TIMES, {
    'connect-timeouts': flag<readonly number[]>(
      durations(),
      DEFAULT_LIMITS.connectTimeoutsMs,
      'Time limits of the connection attempts, one attempt for each; every attempt uses another ' +
        'endpoint while there is one.',
      { live: true },
    ),
    'half-close-timeout': flag(
      duration(1),
      DEFAULT_LIMITS.halfCloseTimeoutMs,
      'How long one direction may stay idle after the other has ended, before both are closed.',
      { live: true },
    ),
    'hold-timeout': flag(
      duration(),
      DEFAULT_LIMITS.holdTimeoutMs,
      'How long a TCP client of a service without endpoints is held until there is one. 0: it is reset, or ' +
        'rejected by packet rules.',
      { live: true },
    ),
    'endpoint-grace-period': flag(
      duration(),
      DEFAULT_LIMITS.endpointGraceMs,
      'How long a connection may outlive its endpoint. 0: until one of the peers ends it.',
      { live: true },
    ),
    'tcp-keepalive': flag(
      duration(1000),
      DEFAULT_LIMITS.keepAliveMs,
      'Idle time before the first TCP keep-alive probe.',
    ),
    'udp-idle-timeout': flag(
      duration(1),
      DEFAULT_LIMITS.udpIdleTimeoutMs,
      'A UDP session ends after this idle time.',
      { aliases: ['udp-timeout'], live: true },
    ),
  }),
  ...group(LIMITS, {
    'max-connections': flag(
      integer(1),
      DEFAULT_LIMITS.maxConnections,
      'Concurrent TCP connections of all services. Further ones are reset.',
      { live: true },
    ),
    'max-held-connections': flag(
      integer(1),
      DEFAULT_LIMITS.maxHeldConnections,
      'TCP clients held at the same time by --hold-timeout. Further ones are reset.',
      { live: true },
    ),
    'max-udp-sessions': flag(
      integer(1),
      DEFAULT_LIMITS.maxUdpSessions,
      'Concurrent UDP sessions of all services. A new one evicts the least recently used.',
      { live: true },
    ),
    'reserved-descriptors': flag(
      integer(0),
      defaultReserve(processDescriptorLimit()),
      'File descriptors reserved for everything but connections and sessions.',
      {
        defaultText: `${DEFAULT_LIMITS.reservedDescriptors}; where ulimit -n is below 1024, a quarter of it`,
      },
    ),
    'max-affinity-clients': flag(
      integer(1),
      DEFAULT_LIMITS.maxAffinityClients,
      'Clients that session affinity remembers for each service port. The oldest is evicted.',
    ),
    'max-affinity-clients-total': flag(
      integer(1),
      DEFAULT_LIMITS.maxAffinityClientsTotal,
      'The same, of all services. The least recently used one is forgotten.',
    ),
    backlog: flag(
      integer(1, 65_535),
      DEFAULT_LIMITS.backlog,
      'Pending connections of each listener.',
    ),
    'bulk-buffer-budget': flag(
      size(0),
      DEFAULT_LIMITS.bulkBufferBudget,
      'Memory for the large buffers of busy connections, in total.',
    ),
    'udp-socket-buffer': flag(
      size(4096, 1024 ** 3),
      DEFAULT_LIMITS.udpSocketBuffer,
      'Requested receive and send buffer of each UDP socket; the system may grant less.',
    ),
    'udp-send-queue': flag(
      size(0, 1024 ** 3),
      DEFAULT_LIMITS.udpSendQueueBytes,
      'Bytes of datagrams queued for one UDP socket that cannot send.',
    ),
    'udp-wildcard-sockets': flag(
      integer(0, 65_535),
      DEFAULT_LIMITS.udpWildcardSockets,
      'Sockets that a UDP listener on the wildcard address opens for single addresses of the host.',
    ),
  }),
} as const satisfies Record<LimitName, FlagSpec<number> | FlagSpec<readonly number[]>>;

/** The limits that the flags set. */
export function readLimits(values: FlagValues<typeof LIMIT_FLAGS>): EngineLimits {
  const limits = Object.entries(LIMIT_NAMES).map(([limit, name]) => [limit, values[name]]);
  return Object.fromEntries(limits);
}
