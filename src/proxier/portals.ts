import { isIPv4, isIPv6, SocketAddress } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { IPFilter, PortMapping, Service } from '../api/generated/localv1/api.ts';
import type { PortalKind, PortalSpec } from '../portal/portal.ts';
import type { Protocol } from '../proxysocket/spec.ts';
import { isPort } from '../util/port-range.ts';
import {
  MAX_SERVICE_ADDRESSES,
  MAX_SERVICE_RANGES,
  quoted,
  type ServiceProblems,
} from './service-limits.ts';

export interface ServiceAddress {
  readonly kind: Exclude<PortalKind, 'nodePort'>;
  readonly address: string;
  /** Allowed client networks; empty: all. */
  readonly sourceRanges: readonly string[];
}

/** Also the same for very many addresses: all clients. */
const NONE: readonly string[] = [];

const KINDS = [
  { kind: 'clusterIP', label: 'cluster IP', list: 'clusterIPs' },
  { kind: 'externalIP', label: 'external IP', list: 'externalIPs' },
  { kind: 'loadBalancerIP', label: 'load-balancer IP', list: 'loadBalancerIPs' },
] as const;

/**
 * The addresses of a service, independent of its ports, each once: cluster IPs, external IPs, load-balancer IPs.
 *
 * Source ranges belong to the load-balancer IPs, or to the target IPs of their filter. An address without valid
 * ranges stays closed.
 */
export function serviceAddresses(service: Service, problems: ServiceProblems): ServiceAddress[] {
  const rangesOf = readFilters(service.ipFilters, problems);
  const addresses: ServiceAddress[] = [];
  let seen = 0;
  for (const { kind, label, list } of KINDS) {
    const ips = service.ips?.[list];
    if (ips === undefined) continue;
    for (const text of [...ips.v4, ...ips.v6]) {
      if (text === '' || text === 'None') continue;
      seen += 1;
      if (seen > MAX_SERVICE_ADDRESSES) continue;
      const address = canonicalAddress(text);
      if (address === undefined) {
        problems.add(`the ${label} ${quoted(text)} is not the address of a host`);
        continue;
      }
      if (addresses.some((each) => each.address === address)) continue;
      const sourceRanges = rangesOf(kind, address);
      if (sourceRanges !== undefined) addresses.push({ kind, address, sourceRanges });
      else {
        problems.add(
          `the ${label} ${address} stays closed: none of its source ranges is a network`,
        );
      }
    }
  }
  const leftOut = 'the further ones are left out';
  problems.check('addresses', seen, MAX_SERVICE_ADDRESSES, leftOut);
  return addresses;
}

/** The portals of one service port. `nodePort` is 0 for none. */
export function portalsOf(
  port: PortMapping,
  protocol: Protocol,
  addresses: readonly ServiceAddress[],
): PortalSpec[] {
  const portals: PortalSpec[] = addresses.map(({ kind, address, sourceRanges }) => ({
    kind,
    protocol,
    address,
    port: port.port,
    traffic: kind === 'clusterIP' ? 'internal' : 'external',
    sourceRanges,
  }));
  if (isPort(port.nodePort)) {
    portals.push({
      kind: 'nodePort',
      protocol,
      address: undefined,
      port: port.nodePort,
      traffic: 'external',
      sourceRanges: NONE,
    });
  }
  return portals;
}

/** The allowed clients of an address: all, if empty; none, if undefined. */
type RangesOf = (kind: PortalKind, address: string) => readonly string[] | undefined;

const UNFILTERED: RangesOf = () => NONE;

/**
 * Filters without target addresses apply to the load-balancer IPs. A filter without ranges limits nothing. One beyond
 * the limit has no valid ranges.
 */
function readFilters(filters: readonly IPFilter[], problems: ServiceProblems): RangesOf {
  if (filters.length === 0) return UNFILTERED;
  /** By address; undefined: the load-balancer IPs. */
  const byTarget = new Map<string | undefined, (readonly string[])[]>();
  let count = 0;
  for (const { sourceRanges, targetIPs } of filters) {
    if (sourceRanges.length === 0) continue;
    const ranges: string[] = [];
    for (const text of sourceRanges.slice(0, Math.max(0, MAX_SERVICE_RANGES - count))) {
      const network = canonicalNetwork(text);
      if (network !== undefined) ranges.push(network);
      else problems.add(`the source range ${quoted(text)} is not a network such as 192.0.2.0/24`);
    }
    count += sourceRanges.length;
    const targets = [...(targetIPs?.v4 ?? []), ...(targetIPs?.v6 ?? [])];
    for (const text of targets.length === 0 ? [undefined] : targets) {
      const target = text && (canonicalAddress(text) ?? text);
      const lists = byTarget.get(target);
      if (lists === undefined) byTarget.set(target, [ranges]);
      else lists.push(ranges);
    }
  }
  const leftOut = 'clients in the further ones are refused';
  problems.check('source ranges', count, MAX_SERVICE_RANGES, leftOut);
  const general = joined(byTarget.get(undefined));
  return (kind, address) => {
    const shared = kind === 'loadBalancerIP' ? general : undefined;
    const own = byTarget.get(address);
    if (shared === undefined && own === undefined) return NONE;
    const ranges = own === undefined ? shared : joined([shared ?? [], ...own]);
    return ranges?.length === 0 ? undefined : ranges;
  };
}

/** Each once, sorted. */
function joined(lists: readonly (readonly string[])[] | undefined): readonly string[] | undefined {
  return lists && [...new Set(lists.flat())].sort();
}

/**
 * In canonical form: unspecified, multicast and broadcast (Linux binds TCP listeners to the latter two), and the
 * deprecated `::192.0.2.1`, which ipaddr.js takes for an IPv4 address.
 */
const NOT_ONE_HOST =
  /^(?:0\.0\.0\.0|(?:22[4-9]|23\d)\..*|255\.255\.255\.255|::|::\d+\..*|ff[\da-f]{2}:.*)$/;

/** The canonical text: IPv6 as the system writes it, IPv4-mapped as IPv4. Undefined for anything but the address of one host. */
export function canonicalAddress(text: string): string | undefined {
  if (isIPv4(text)) return NOT_ONE_HOST.test(text) ? undefined : text;
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const { address } = new SocketAddress({ address: text, family: 'ipv6' });
  const mapped = /^::ffff:(.*\..*)$/.exec(address)?.[1];
  if (mapped !== undefined) return canonicalAddress(mapped);
  return NOT_ONE_HOST.test(address) ? undefined : address;
}

/** A network, trimmed; undefined for an invalid one. */
export function canonicalNetwork(text: string): string | undefined {
  const trimmed = text.trim();
  return ipaddr.isValidCIDR(trimmed) ? trimmed : undefined;
}
