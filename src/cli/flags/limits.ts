import { defaultReserve, processDescriptorLimit } from '../../proxysocket/core/descriptors.ts';
import { DEFAULT_LIMITS, type EngineLimits, type LimitName } from '../../proxysocket/limits.ts';
import { duration, durations, integer, size } from './kinds.ts';
import { flag, type FlagSpec, type FlagValues } from './table.ts';

const LIMITS = 'Limits';
const TIMES = 'Times';

/** One flag for each limit of the data path; the names are those of the metrics and of docs/limits.md. */
export const LIMIT_FLAGS = {
  'connect-timeouts': flag<readonly number[]>({
    kind: durations(),
    default: DEFAULT_LIMITS.connectTimeoutsMs,
    help:
      'Time limit of each attempt to reach an endpoint. There are as many attempts as times, each ' +
      'on another endpoint while there is one.',
    group: TIMES,
    live: true,
  }),
  'half-close-timeout': flag<number>({
    kind: duration(1),
    default: DEFAULT_LIMITS.halfCloseTimeoutMs,
    help: 'How long one direction may stay silent after the other has ended, before both are closed.',
    group: TIMES,
    live: true,
  }),
  'hold-timeout': flag<number>({
    kind: duration(),
    default: DEFAULT_LIMITS.holdTimeoutMs,
    help:
      'How long a TCP client of a service without endpoints is held until there is one. 0: it is reset, or ' +
      'refused by packet rules.',
    group: TIMES,
    live: true,
  }),
  'endpoint-grace-period': flag<number>({
    kind: duration(),
    default: DEFAULT_LIMITS.endpointGraceMs,
    help: 'How long a connection may outlive its endpoint. 0: until one of the peers ends it.',
    group: TIMES,
    live: true,
  }),
  'tcp-keepalive': flag<number>({
    kind: duration(1000),
    default: DEFAULT_LIMITS.keepAliveMs,
    help: 'Idle time before TCP asks whether the peer is still there.',
    group: TIMES,
  }),
  'udp-idle-timeout': flag<number>({
    kind: duration(1),
    default: DEFAULT_LIMITS.udpIdleTimeoutMs,
    help: 'A UDP session ends when nothing has passed either way for so long.',
    group: TIMES,
    aliases: ['udp-timeout'],
    live: true,
  }),
  'max-connections': flag<number>({
    kind: integer(1),
    default: DEFAULT_LIMITS.maxConnections,
    help: 'TCP connections at once, of all services. More are reset.',
    group: LIMITS,
    live: true,
  }),
  'max-held-connections': flag<number>({
    kind: integer(1),
    default: DEFAULT_LIMITS.maxHeldConnections,
    help: 'TCP clients held at once with --hold-timeout, of all services. More are reset.',
    group: LIMITS,
    live: true,
  }),
  'max-udp-sessions': flag<number>({
    kind: integer(1),
    default: DEFAULT_LIMITS.maxUdpSessions,
    help: 'UDP sessions at once, of all services. A new one ends the least recently used.',
    group: LIMITS,
    live: true,
  }),
  'reserved-descriptors': flag<number>({
    kind: integer(0),
    default: defaultReserve(processDescriptorLimit()),
    defaultText: `${DEFAULT_LIMITS.reservedDescriptors}; where ulimit -n is below 1024, a quarter of it`,
    help: 'File descriptors kept free for everything but connections and sessions.',
    group: LIMITS,
  }),
  'max-affinity-clients': flag<number>({
    kind: integer(1),
    default: DEFAULT_LIMITS.maxAffinityClients,
    help: 'Clients that session affinity remembers for each service port. The oldest is forgotten.',
    group: LIMITS,
  }),
  'max-affinity-clients-total': flag<number>({
    kind: integer(1),
    default: DEFAULT_LIMITS.maxAffinityClientsTotal,
    help: 'The same, of all services. The least recently used one is forgotten.',
    group: LIMITS,
  }),
  backlog: flag<number>({
    kind: integer(1, 65_535),
    default: DEFAULT_LIMITS.backlog,
    help: 'Connections of one listener that wait to be accepted.',
    group: LIMITS,
  }),
  'bulk-buffer-budget': flag<number>({
    kind: size(0),
    default: DEFAULT_LIMITS.bulkBufferBudget,
    help: 'Memory for the large buffers of busy connections, of all of them together.',
    group: LIMITS,
  }),
  'udp-socket-buffer': flag<number>({
    kind: size(4096, 1024 ** 3),
    default: DEFAULT_LIMITS.udpSocketBuffer,
    help: 'Receive and send buffer asked for each UDP socket; the system may give less.',
    group: LIMITS,
  }),
  'udp-send-queue': flag<number>({
    kind: size(0, 1024 ** 3),
    default: DEFAULT_LIMITS.udpSendQueueBytes,
    help: 'Datagrams that may wait here for one UDP socket while it cannot take them.',
    group: LIMITS,
  }),
  'udp-wildcard-sockets': flag<number>({
    kind: integer(0, 65_535),
    default: DEFAULT_LIMITS.udpWildcardSockets,
    help: 'Sockets that a UDP listener on every address opens for single addresses of the host.',
    group: LIMITS,
  }),
} as const satisfies Record<LimitName, FlagSpec<number> | FlagSpec<readonly number[]>>;

/** The limits that the flags ask for. */
export function readLimits(values: FlagValues<typeof LIMIT_FLAGS>): EngineLimits {
  return {
    maxConnections: values['max-connections'],
    maxUdpSessions: values['max-udp-sessions'],
    reservedDescriptors: values['reserved-descriptors'],
    connectTimeoutsMs: values['connect-timeouts'],
    halfCloseTimeoutMs: values['half-close-timeout'],
    holdTimeoutMs: values['hold-timeout'],
    maxHeldConnections: values['max-held-connections'],
    endpointGraceMs: values['endpoint-grace-period'],
    keepAliveMs: values['tcp-keepalive'],
    udpIdleTimeoutMs: values['udp-idle-timeout'],
    bulkBufferBudget: values['bulk-buffer-budget'],
    udpSocketBuffer: values['udp-socket-buffer'],
    udpSendQueueBytes: values['udp-send-queue'],
    udpWildcardSockets: values['udp-wildcard-sockets'],
    backlog: values['backlog'],
    maxAffinityClients: values['max-affinity-clients'],
    maxAffinityClientsTotal: values['max-affinity-clients-total'],
  };
}
