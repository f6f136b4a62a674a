import { defaultReserve, processDescriptorLimit } from '../../proxysocket/core/descriptors.ts';
import {
  DEFAULT_LIMITS,
  LIMIT_NAMES,
  LIVE_LIMITS,
  type EngineLimits,
} from '../../proxysocket/limits.ts';
import { fieldName } from '../../config/field.ts';
import { duration, durations, integer, size } from './kinds.ts';
import { type FlagKind, type FlagSpec, type FlagValues } from './table.ts';

type Row<T> = Pick<FlagSpec<T>, 'kind' | 'help'> & Partial<FlagSpec<T>>;

function row<T>(kind: FlagKind<T>, text: Omit<Row<T>, 'kind'>): Row<T> {
  return { kind, ...text };
}

/** What proxysocket/limits.ts does not define for each limit of the data path. */
const ROWS: { readonly [Limit in keyof EngineLimits]: Row<EngineLimits[Limit]> } = {
  connectTimeoutsMs: row(durations(), {
    help:
      'Time limits of the connection attempts, one attempt for each; every attempt uses another ' +
      'endpoint while there is one.',
  }),
  halfCloseTimeoutMs: row(duration(1), {
    help: 'How long one direction may stay idle after the other has ended, before both are closed.',
  }),
  holdTimeoutMs: row(duration(), {
    help:
      'How long a TCP client of a service without endpoints is held until there is one. 0: it is reset, or ' +
      'rejected by packet rules.',
  }),
  endpointGraceMs: row(duration(), {
    help: 'How long a connection may outlive its endpoint. 0: until one of the peers ends it.',
  }),
  keepAliveMs: row(duration(1000), { help: 'Idle time before the first TCP keep-alive probe.' }),
  udpIdleTimeoutMs: row(duration(1), {
    help: 'A UDP session ends after this idle time.',
    aliases: ['udp-timeout'],
  }),
  maxConnections: row(integer(1), {
    help: 'Concurrent TCP connections of all services. Further ones are reset.',
  }),
  maxHeldConnections: row(integer(1), {
    help: 'TCP clients held at the same time by --hold-timeout. Further ones are reset.',
  }),
  maxUdpSessions: row(integer(1), {
    help: 'Concurrent UDP sessions of all services. A new one evicts the least recently used.',
  }),
  reservedDescriptors: row(integer(0), {
    help: 'File descriptors reserved for everything but connections and sessions.',
    default: defaultReserve(processDescriptorLimit()),
    defaultText: `${DEFAULT_LIMITS.reservedDescriptors}; where ulimit -n is below 1024, a quarter of it`,
  }),
  maxAffinityClients: row(integer(1), {
    help: 'Clients that session affinity remembers for each service port. The oldest is evicted.',
  }),
  maxAffinityClientsTotal: row(integer(1), {
    help: 'The same, of all services. The least recently used one is forgotten.',
  }),
  backlog: row(integer(1, 65_535), { help: 'Pending connections of each listener.' }),
  bulkBufferBudget: row(size(0), {
    help: 'Memory for the large buffers of busy connections, in total.',
  }),
  udpSocketBuffer: row(size(4096, 1024 ** 3), {
    help: 'Requested receive and send buffer of each UDP socket; the system may grant less.',
  }),
  udpSendQueueBytes: row(size(0, 1024 ** 3), {
    help: 'Bytes of datagrams queued for one UDP socket that cannot send.',
  }),
  udpWildcardSockets: row(integer(0, 65_535), {
    help: 'Sockets that a UDP listener on the wildcard address opens for single addresses of the host.',
  }),
};

const LIVE: ReadonlySet<string> = new Set(LIVE_LIMITS);

function limitFlag(limit: keyof EngineLimits): [string, FlagSpec<unknown>] {
  const group = limit.endsWith('Ms') ? 'Times' : 'Limits';
  const live = LIVE.has(limit) && ({ live: true } as const);
  const spec = { default: DEFAULT_LIMITS[limit], group, ...live, ...(ROWS[limit] as Row<unknown>) };
  return [LIMIT_NAMES[limit], spec];
}

/** One flag for each limit of the data path; the names are those of the metrics and of docs/reference/limits.md. */
export const LIMIT_FLAGS = Object.fromEntries(
  (Object.keys(ROWS) as (keyof EngineLimits)[]).map(limitFlag),
) as {
  readonly [Limit in keyof EngineLimits as (typeof LIMIT_NAMES)[Limit]]: FlagSpec<
    EngineLimits[Limit]
  >;
};

export function readLimits(values: FlagValues<typeof LIMIT_FLAGS>): EngineLimits {
  const byField: Readonly<Record<string, unknown>> = values;
  const limits = Object.entries(LIMIT_NAMES).map(([limit, name]) => [
    limit,
    byField[fieldName(name)],
  ]);
  return Object.fromEntries(limits);
}
