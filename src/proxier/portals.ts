import type { IPFilter, IPSet, PortMapping, Service } from '../api/generated/localv1/api.ts';
import { KpngError } from '../errors.ts';
import type { PortalKind, PortalSpec } from '../portal/portal.ts';
import type { Protocol } from '../proxysocket/spec.ts';
import { canonicalAddress, canonicalNetwork, isPort } from './address.ts';

/** A valid address of a service. */
export interface ServiceAddress {
  readonly kind: Exclude<PortalKind, 'nodePort'>;
  readonly address: string;
  /** Client networks that are let in; empty: all. */
  readonly sourceRanges: readonly string[];
}

/** What a service's addresses come to, whatever its ports. */
export interface ServiceAddresses {
  readonly addresses: readonly ServiceAddress[];
  readonly problems: readonly KpngError[];
}

/**
 * The addresses of a service, both families, each once: cluster IPs first, then external IPs, then
 * load-balancer IPs.
 *
 * Source ranges belong to the load-balancer IPs, or to the target IPs of their filter where it
 * names some. When none of an address's ranges can be read, the address is left out rather than
 * opened to everybody.
 */
export function serviceAddresses(key: string, service: Service): ServiceAddresses {
  const problems: KpngError[] = [];
  const invalid = (message: string): void => {
    problems.push(
      new KpngError('KPNG_SERVICE_INVALID', `${key}: ${message}`, { servicePort: key }),
    );
  };
  const filters = service.ipFilters.map((filter) => readFilter(filter, invalid));
  const lists: [ServiceAddress['kind'], string, IPSet | undefined][] = [
    ['clusterIP', 'cluster IP', service.ips?.clusterIPs],
    ['externalIP', 'external IP', service.ips?.externalIPs],
    ['loadBalancerIP', 'load-balancer IP', service.ips?.loadBalancerIPs],
  ];
  const addresses = new Map<string, ServiceAddress>();
  for (const [kind, label, set] of lists) {
    for (const text of [...(set?.v4 ?? []), ...(set?.v6 ?? [])]) {
      if (text === '' || text === 'None') continue;
      const address = canonicalAddress(text);
      if (address === undefined) {
        invalid(`the ${label} ${JSON.stringify(text)} is not the address of a host`);
        continue;
      }
      if (addresses.has(address)) continue;
      const ranges = rangesFor(filters, kind, address);
      if (ranges === 'none readable') {
        invalid(`the ${label} ${address} stays closed: none of its source ranges is a network`);
      } else addresses.set(address, { kind, address, sourceRanges: ranges });
    }
  }
  return { addresses: [...addresses.values()], problems };
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
      sourceRanges: [],
    });
  }
  return portals;
}

interface ReadFilter {
  /** Empty: the load-balancer IPs. */
  readonly targets: ReadonlySet<string>;
  readonly ranges: readonly string[];
}

/** A filter without ranges limits nothing, and reads as undefined. */
function readFilter(filter: IPFilter, invalid: (message: string) => void): ReadFilter | undefined {
  if (filter.sourceRanges.length === 0) return undefined;
  const ranges: string[] = [];
  for (const text of filter.sourceRanges) {
    const network = canonicalNetwork(text);
    if (network === undefined) {
      invalid(`the source range ${JSON.stringify(text)} is not a network such as 192.0.2.0/24`);
    } else if (!ranges.includes(network)) ranges.push(network);
  }
  const targets = [...(filter.targetIPs?.v4 ?? []), ...(filter.targetIPs?.v6 ?? [])];
  return { targets: new Set(targets.map((text) => canonicalAddress(text) ?? text)), ranges };
}

/** The ranges of all filters for an address; empty when no filter is for it. */
function rangesFor(
  filters: readonly (ReadFilter | undefined)[],
  kind: PortalKind,
  address: string,
): readonly string[] | 'none readable' {
  const mine = filters.filter(
    (filter) =>
      filter !== undefined &&
      (filter.targets.size === 0 ? kind === 'loadBalancerIP' : filter.targets.has(address)),
  );
  if (mine.length === 0) return [];
  const ranges = new Set(mine.flatMap((filter) => filter?.ranges ?? []));
  return ranges.size === 0 ? 'none readable' : [...ranges].sort();
}
