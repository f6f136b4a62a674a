import type { Endpoint, PortMapping } from '../api/generated/localv1/api.ts';
import type { KpngError } from '../errors.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import type { ServiceEntry } from '../store/local-view.ts';
import { listChanges } from '../util/compare.ts';
import { isPort } from '../util/port-range.ts';
import { canonicalAddress } from './portals.ts';
import { problemOf } from './service-limits.ts';

/**
 * The port of an endpoint for a service port, possibly out of range; undefined: none.
 *
 * In order: the endpoint's port with the service port's name; with the target port's name, unless another port has
 * that name; the numeric target port, if the endpoint lists none or nothing has a name. kpng resolves neither the
 * empty name nor endpoints without a list.
 */
export function resolvePort(
  port: PortMapping,
  endpoint: Endpoint,
  servicePortNames: ReadonlySet<string>,
): number | undefined {
  const { name, targetPortName, targetPort } = port;
  const byName = endpoint.portOverrides.length > MANY ? indexed(endpoint.portOverrides) : undefined;
  const find = (wanted: string): number | undefined =>
    byName === undefined
      ? endpoint.portOverrides.findLast((each) => each.name === wanted)?.port
      : byName.get(wanted);
  const own = find(name);
  if (own !== undefined) return own;
  const byTarget = targetPortName === '' ? undefined : find(targetPortName);
  if (byTarget !== undefined && !servicePortNames.has(targetPortName)) return byTarget;
  const nameless = name === '' && targetPortName === '';
  const mayUseNumber = nameless || endpoint.portOverrides.length === 0;
  return mayUseNumber && targetPort !== 0 ? targetPort : undefined;
}

/** From this many ports on, an endpoint's list is indexed: each port of the service searches it. */
const MANY = 8;

const indexes = new WeakMap<Overrides, ReadonlyMap<string, number>>();
type Overrides = Endpoint['portOverrides'];

function indexed(overrides: Overrides): ReadonlyMap<string, number> {
  let index = indexes.get(overrides);
  if (index === undefined) {
    index = new Map(overrides.map(({ name, port }) => [name, port]));
    indexes.set(overrides, index);
  }
  return index;
}

/** The endpoints of one service port, and the problems of unusable ones. */
export interface ResolvedEndpoints {
  readonly endpoints: readonly EndpointSpec[];
  readonly problems: readonly KpngError[];
}

/** Earlier results for the endpoints of a service port. */
export class KnownSpecs {
  /** Of usable endpoints. */
  readonly of = new WeakMap<Endpoint, readonly EndpointSpec[]>();
  /** The last list, if no two in it have the same address and port. */
  distinct: readonly EndpointSpec[] | undefined;
}

/** The first endpoint with each kind of fault. */
interface Faults {
  badAddress?: string;
  badPort?: string;
  noPort?: string;
  notServed?: string;
}

/**
 * The endpoints of one service port: one for each address. Without scopes, an endpoint serves all traffic; with
 * neither scope set, it stays in the list so that its connections can end.
 *
 * Endpoints that list other ports do not serve this one, which is an error only if none does.
 *
 * `known`: earlier results, to which new ones are added; unchanged endpoints give the same objects.
 */
export function endpointsOf(
  servicePort: string,
  port: PortMapping,
  entry: ServiceEntry,
  portNames: ReadonlySet<string>,
  known?: KnownSpecs,
): ResolvedEndpoints {
  const { internalTrafficToLocal, externalTrafficToLocal } = entry.service;
  const bothLocal = internalTrafficToLocal && externalTrafficToLocal;
  const faults: Faults = {};
  const all: EndpointSpec[] = [];
  // Unlike iteration, this makes no objects.
  entry.endpoints.forEach((endpoint, key) => {
    const specs = known?.of.get(endpoint);
    if (specs !== undefined) {
      for (const spec of specs) all.push(spec);
      return;
    }
    const number = resolvePort(port, endpoint, portNames);
    const start = all.length;
    const isWhole = addSpecs(all, key, endpoint, number, bothLocal, faults);
    // The faults of the others are to be reported each time.
    if (isWhole) known?.of.set(endpoint, all.slice(start));
  });
  const added = known?.distinct && listChanges(known.distinct, all).added;
  const isDistinct = added !== undefined && !meets(added, all);
  const endpoints = isDistinct ? all.slice() : merged(all);
  if (known !== undefined) known.distinct = endpoints.length === all.length ? all : undefined;
  return { endpoints, problems: problemsOf(servicePort, port, endpoints.length === 0, faults) };
}

/** Adds one for each address of an endpoint. False if some of it is unusable, with the reason recorded. */
function addSpecs(
  to: EndpointSpec[],
  key: string,
  { ips, portOverrides, scopes }: Endpoint,
  port: number | undefined,
  bothLocal: boolean,
  faults: Faults,
): boolean {
  const { v4 = NONE, v6 = NONE } = ips ?? {};
  if (port === undefined) {
    if (portOverrides.length === 0) faults.noPort ??= key;
    else faults.notServed ??= key;
    return false;
  }
  if (!isPort(port)) {
    faults.badPort ??= `${key} (${port})`;
    return false;
  }
  if (v4.length + v6.length === 0) faults.badAddress ??= key;
  const { internal, external } = scopes ?? { internal: true, external: true };
  // A server that does not know the scope sends only what external clients may use, too.
  const cluster = bothLocal && (scopes?.cluster ?? external);
  let usable = 0;
  for (const texts of [v4, v6]) {
    for (const text of texts) {
      const address = canonicalAddress(text);
      if (address === undefined) {
        faults.badAddress ??= `${key} (${JSON.stringify(text)})`;
        continue;
      }
      usable += 1;
      to.push(
        cluster
          ? { address, port, internal, external, cluster }
          : { address, port, internal, external },
      );
    }
  }
  return usable > 0 && usable === v4.length + v6.length;
}

const NONE: readonly string[] = [];

/** Whether one of a few has the same address and port as one of all. */
function meets(few: readonly EndpointSpec[], all: readonly EndpointSpec[]): boolean {
  if (few.length === 0) return false;
  const addresses = new Map(few.map((spec) => [spec.address, spec]));
  if (addresses.size < few.length) return true;
  return all.some((spec) => {
    const other = addresses.get(spec.address);
    return other !== undefined && other !== spec && other.port === spec.port;
  });
}

/** One for each address and port, without spare capacity, which very many service ports would keep. */
function merged(specs: readonly EndpointSpec[]): readonly EndpointSpec[] {
  if (new Set(specs.map(({ address }) => address)).size === specs.length) return specs.slice();
  const byAddress = new Map<string, EndpointSpec>();
  for (const spec of specs) {
    const key = `${spec.address} ${spec.port}`;
    const same = byAddress.get(key);
    const both = same && {
      ...spec,
      internal: spec.internal || same.internal,
      external: spec.external || same.external,
      ...((spec.cluster || same.cluster) && { cluster: true }),
    };
    byAddress.set(key, both ?? spec);
  }
  return byAddress.size === specs.length ? specs.slice() : [...byAddress.values()];
}

function problemsOf(
  servicePort: string,
  port: PortMapping,
  none: boolean,
  { badAddress, badPort, noPort, notServed }: Faults,
): KpngError[] {
  const problems: KpngError[] = [];
  const leftOut = (example: string | undefined, reason: string): void => {
    if (example === undefined) return;
    // Without numbers: the text would be a new problem whenever an endpoint is added or removed.
    const message = `endpoints ${reason} are left out, such as ${example}`;
    problems.push(problemOf(servicePort, message));
  };
  leftOut(badAddress, 'without a valid IP address');
  leftOut(badPort, 'whose port is not 1 to 65535');
  const unserved = noPort ?? (none ? notServed : undefined);
  if (unserved !== undefined) leftOut(unserved, `without a port ${portWanted(port)}`);
  return problems;
}

function portWanted({ name, targetPortName }: PortMapping): string {
  const names = [...new Set([name, targetPortName])].filter((each) => each !== '');
  return names.length === 0 ? 'or target port' : `named ${names.join(' or ')}`;
}
