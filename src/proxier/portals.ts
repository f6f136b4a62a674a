import { isIPv4, isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { IPFilter, PortMapping, Service } from '../api/generated/localv1/api.ts';
import type { KpngError } from '../errors.ts';
import type { PortalKind, PortalSpec } from '../portal/portal.ts';
import type { Protocol } from '../proxysocket/spec.ts';
import { isPort } from '../util/port-range.ts';
import {
  MAX_SERVICE_ADDRESSES,
  MAX_SERVICE_RANGES,
  problemOf,
  quoted,
  tooMany,
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
  ['clusterIP', 'cluster IP', 'clusterIPs'],
  ['externalIP', 'external IP', 'externalIPs'],
  ['loadBalancerIP', 'load-balancer IP', 'loadBalancerIPs'],
] as const;

/** The addresses of a service, independent of its ports. */
export interface ServiceAddresses {
  readonly addresses: readonly ServiceAddress[];
  readonly problems: readonly KpngError[];
}

/**
 * The addresses of a service, each once: cluster IPs, external IPs, load-balancer IPs.
 *
 * Source ranges belong to the load-balancer IPs, or to the target IPs of their filter. An address without valid
 * ranges stays closed.
 */
export function serviceAddresses(key: string, service: Service): ServiceAddresses {
  const problems: KpngError[] = [];
  const invalid = (message: string): void => void problems.push(problemOf(key, message));
  const filters = readFilters(service.ipFilters, invalid);
  const ranges = service.ipFilters.reduce((sum, filter) => sum + filter.sourceRanges.length, 0);
  if (ranges > MAX_SERVICE_RANGES) {
    const leftOut = 'clients in the further ones are refused';
    problems.push(tooMany(key, 'source ranges', ranges, MAX_SERVICE_RANGES, leftOut));
  }
  const addresses: ServiceAddress[] = [];
  let seen = 0;
  for (const [kind, label, list] of KINDS) {
    const { v4 = NONE, v6 = NONE } = service.ips?.[list] ?? {};
    for (const texts of [v4, v6]) {
      for (const text of texts) {
        if (text === '' || text === 'None') continue;
        seen += 1;
        if (seen > MAX_SERVICE_ADDRESSES) continue;
        const address = canonicalAddress(text);
        if (address === undefined) {
          invalid(`the ${label} ${quoted(text)} is not the address of a host`);
          continue;
        }
        if (addresses.some((each) => each.address === address)) continue;
        const sourceRanges = rangesFor(filters, kind, address);
        if (sourceRanges === 'none readable') {
          invalid(`the ${label} ${address} stays closed: none of its source ranges is a network`);
        } else addresses.push({ kind, address, sourceRanges });
      }
    }
  }
  if (seen > MAX_SERVICE_ADDRESSES) {
    const leftOut = 'the further ones are left out';
    problems.push(tooMany(key, 'addresses', seen, MAX_SERVICE_ADDRESSES, leftOut));
  }
  return { addresses, problems };
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

interface ReadFilters {
  /** The ranges of filters without target addresses, which apply to the load-balancer IPs. */
  readonly general: readonly string[] | undefined;
  readonly byAddress: ReadonlyMap<string, readonly (readonly string[])[]>;
}

const NO_FILTERS: ReadFilters = { general: undefined, byAddress: new Map() };

/** A filter without ranges limits nothing. One beyond the limit has no valid ranges. */
function readFilters(
  filters: readonly IPFilter[],
  invalid: (message: string) => void,
): ReadFilters {
  if (filters.length === 0) return NO_FILTERS;
  const general: (readonly string[])[] = [];
  const byAddress = new Map<string, (readonly string[])[]>();
  let left = MAX_SERVICE_RANGES;
  for (const { sourceRanges, targetIPs } of filters) {
    if (sourceRanges.length === 0) continue;
    const ranges = readRanges(sourceRanges.slice(0, left), invalid);
    left -= Math.min(left, sourceRanges.length);
    const targets = [...(targetIPs?.v4 ?? []), ...(targetIPs?.v6 ?? [])];
    if (targets.length === 0) general.push(ranges);
    for (const text of targets) {
      const address = canonicalAddress(text) ?? text;
      const lists = byAddress.get(address);
      if (lists === undefined) byAddress.set(address, [ranges]);
      else lists.push(ranges);
    }
  }
  return { general: general.length === 0 ? undefined : joined(general), byAddress };
}

function joined(lists: readonly (readonly string[])[]): string[] {
  return [...new Set(lists.flat())].sort();
}

function readRanges(texts: readonly string[], invalid: (message: string) => void): string[] {
  return texts.flatMap((text) => {
    const network = canonicalNetwork(text);
    if (network !== undefined) return [network];
    invalid(`the source range ${quoted(text)} is not a network such as 192.0.2.0/24`);
    return [];
  });
}

/** The ranges of all filters for an address; empty if there is no filter for it. */
function rangesFor(
  { general, byAddress }: ReadFilters,
  kind: PortalKind,
  address: string,
): readonly string[] | 'none readable' {
  const mine = kind === 'loadBalancerIP' ? general : undefined;
  const own = byAddress.get(address);
  if (mine === undefined && own === undefined) return NONE;
  const ranges = own === undefined ? (mine ?? []) : joined([mine ?? [], ...own]);
  return ranges.length === 0 ? 'none readable' : ranges;
}

/** In canonical form: unspecified, multicast, broadcast. Linux binds TCP listeners to the latter two. */
const NOT_ONE_HOST = /^(?:0\.0\.0\.0|(?:22[4-9]|23\d)\..*|255\.255\.255\.255|::|ff[\da-f]{2}:.*)$/;

/** The canonical text: short IPv6, IPv4-mapped as IPv4. Undefined for anything but the address of one host. */
export function canonicalAddress(text: string): string | undefined {
  if (isIPv4(text)) return NOT_ONE_HOST.test(text) ? undefined : text;
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const address = ipaddr.IPv6.parse(text);
  if (address.isIPv4MappedAddress()) return canonicalAddress(address.toIPv4Address().toString());
  const short = address.toString();
  return NOT_ONE_HOST.test(short) ? undefined : short;
}

/** A network, trimmed; undefined for an invalid one. */
export function canonicalNetwork(text: string): string | undefined {
  const trimmed = text.trim();
  return ipaddr.isValidCIDR(trimmed) ? trimmed : undefined;
}
