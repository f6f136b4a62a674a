/** Flags that several backends have. */
import { hostname } from 'node:os';
import { fieldName } from '../../config/fields.ts';
import { KpngError } from '../../errors.ts';
import { checkPrefix, DEFAULT_PREFIX } from '../../portal/iptables/script.ts';
import { DEFAULT_ROUTE } from '../../portal/nftables/policy-route.ts';
import { checkTableName, DEFAULT_TABLE } from '../../portal/nftables/table.ts';
import type { TransparentRoute } from '../../portal/rules/backend.ts';
import { defaultReserve, processDescriptorLimit } from '../../proxysocket/core/descriptors.ts';
import { DEFAULT_LIMITS, LIMIT_NAMES, LIVE_LIMITS } from '../../proxysocket/limits.ts';
import type { EngineLimits, LimitName } from '../../proxysocket/limits.ts';
import { nameList } from '../../util/suggest.ts';
import { choice, duration, durations, integer, markBits, size, text, toggle } from './kinds.ts';
import { flag, group, prose, type FlagKind, type FlagSpec, type FlagValues } from './table.ts';

const nodeName = text('name', (given) => {
  if (given === '' || /[\s\p{Cc}/]/u.test(given)) throw new Error('not the name of a node');
});

export const NODE_FLAGS = group('Node', {
  'node-name': flag(nodeName, hostname(), {
    aliases: ['hostname-override'],
    defaultText: 'the host name',
  })`
    Name of this node in the cluster, exactly as written there. It selects local endpoints, topology hints and
    traffic policies.`,
});

/** The error if a source has nodes, but not this one. */
export function unknownNode(node: string, names: readonly string[], source: string): KpngError {
  return new KpngError(
    'KPNG_NODE_UNKNOWN',
    `--node-name ${JSON.stringify(node)}: the ${source} has no such node; it has ${nameList(names)}`,
  );
}

/** Names of the proxy's tables and chains, for the backend that writes them and for `cleanup`. */
export const PORTAL_NAME_FLAGS = group('Addresses', {
  'portal-table': flag(text('name', checkTableName), DEFAULT_TABLE)`
    Name of the nftables table for the rules. Two proxies on one host need different ones.`,
  'portal-chain-prefix': flag(text('name', checkPrefix), DEFAULT_PREFIX)`
    Prefix of the names of the iptables chains for the rules. Two proxies on one host need different ones.`,
  'portal-mark': flag(markBits, DEFAULT_ROUTE.mark)`
    Bits of the packet mark of --portal transparent; no other program may set or match them.`,
  'portal-route-table': flag(integer(1, 0xffffffff), DEFAULT_ROUTE.table)`
    Number of the routing table of --portal transparent, which delivers marked packets to this host.`,
  'portal-rule-priority': flag(integer(1, 32_765), DEFAULT_ROUTE.priority)`
    Priority of the routing rule of --portal transparent, which sends marked packets to that table.`,
});

export function readRoute(values: FlagValues<typeof PORTAL_NAME_FLAGS>): TransparentRoute {
  const { portalMark: mark, portalRouteTable: table, portalRulePriority: priority } = values;
  return { mark, table, priority };
}

export const IPTABLES_FLAVOR_FLAGS = group('Addresses', {
  'iptables-flavor': flag(choice(['auto', 'nft', 'legacy']), 'auto')`
    Which iptables writes the rules where both are installed. auto: the one that holds the rules of Kubernetes,
    else the one with more rules, else iptables on the PATH.`,
});

export const CLEANUP_FLAGS = {
  ...PORTAL_NAME_FLAGS,
  ...group('Addresses', {
    'kube-proxy-userspace': flag(toggle, false)`
      Also remove the iptables chains that kube-proxy left in its userspace mode. Stop kube-proxy first.`,
    'portal-interface': flag(text('name'), '')`
      Interface to remove service addresses from. Empty: every interface.`,
  }),
};

export type CleanupTargets = FlagValues<typeof CLEANUP_FLAGS>;

function row<T>(kind: FlagKind<T>, more: Partial<FlagSpec<T>> = {}) {
  return (...help: Parameters<typeof prose>) => ({ kind, help: prose(...help), ...more });
}

/** What proxysocket/limits.ts does not define for each limit of the data path. */
const ROWS: { readonly [Limit in keyof EngineLimits]: Partial<FlagSpec<EngineLimits[Limit]>> } = {
  connectTimeoutsMs: row(durations())`
    Time limits of the connection attempts, one attempt for each; every attempt uses another endpoint while
    there is one.`,
  halfCloseTimeoutMs: row(duration(1))`
    How long one direction may stay idle after the other has ended, before both are closed.`,
  holdTimeoutMs: row(duration())`
    How long a TCP client of a service without endpoints is held until there is one. 0: it is reset, or rejected
    by packet rules.`,
  endpointGraceMs: row(duration())`
    How long a connection may outlive its endpoint. 0: until one of the peers ends it.`,
  keepAliveMs: row(duration(1000))`Idle time before the first TCP keep-alive probe.`,
  udpIdleTimeoutMs: row(duration(1), { aliases: ['udp-timeout'] })`
    A UDP session ends after this idle time.`,
  maxConnections: row(integer(1))`
    Concurrent TCP connections of all services. Further ones are reset.`,
  maxHeldConnections: row(integer(1))`
    TCP clients held at the same time by --hold-timeout. Further ones are reset.`,
  maxUdpSessions: row(integer(1))`
    Concurrent UDP sessions of all services. A new one evicts the least recently used.`,
  reservedDescriptors: row(integer(0), {
    default: defaultReserve(processDescriptorLimit()),
    defaultText: `${DEFAULT_LIMITS.reservedDescriptors}; where ulimit -n is below 1024, a quarter of it`,
  })`
    File descriptors reserved for everything but connections and sessions.`,
  maxAffinityClients: row(integer(1))`
    Clients that session affinity remembers for each service port. The oldest is evicted.`,
  maxAffinityClientsTotal: row(integer(1))`
    The same, of all services. The least recently used one is forgotten.`,
  backlog: row(integer(1, 65_535))`Pending connections of each listener.`,
  bulkBufferBudget: row(size(0))`Memory for the large buffers of busy connections, in total.`,
  udpSocketBuffer: row(size(4096, 1024 ** 3))`
    Requested receive and send buffer of each UDP socket; the system may grant less.`,
  udpSendQueueBytes: row(size(0, 1024 ** 3))`
    Bytes of datagrams queued for one UDP socket that cannot send.`,
  udpWildcardSockets: row(integer(0, 65_535))`
    Sockets that a UDP listener on the wildcard address opens for single addresses of the host.`,
};

/** One flag for each limit of the data path; the names are those of the metrics and of docs/reference/limits.md. */
export const LIMIT_FLAGS = Object.fromEntries(
  Object.entries(ROWS).map(([key, row]) => {
    const limit = key as keyof EngineLimits;
    const group = limit.endsWith('Ms') ? 'Times' : 'Limits';
    const live = LIVE_LIMITS.some((each) => each === limit) && { live: true };
    return [LIMIT_NAMES[limit], { default: DEFAULT_LIMITS[limit], group, ...live, ...row }];
  }),
) as Readonly<Record<LimitName, FlagSpec<unknown>>>;

export function readLimits(values: Readonly<Record<string, unknown>>): EngineLimits {
  const names = Object.entries(LIMIT_NAMES);
  const limits = names.map(([limit, name]) => [limit, values[fieldName(name)]]);
  return Object.fromEntries(limits) as EngineLimits;
}
