import type { Endpoint, PortMapping } from '../api/generated/localv1/api.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import type { ServiceEntry } from '../store/local-view.ts';
import { isPort } from '../util/port-range.ts';
import { canonicalAddress } from './portals.ts';
import type { ServiceProblems } from './service-limits.ts';

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

const NONE: readonly string[] = [];

/**
 * The endpoints of one service port: one for each address. Without scopes, an endpoint serves all traffic; with
 * neither scope set, it stays in the list so that its connections can end.
 *
 * Unusable ones are left out. Endpoints that list other ports do not serve this one, which is an error only if none
 * does.
 */
export function endpointsOf(
  servicePort: string,
  port: PortMapping,
  { service, endpoints: given }: ServiceEntry,
  portNames: ReadonlySet<string>,
  problems: ServiceProblems,
): readonly EndpointSpec[] {
  const bothLocal = service.internalTrafficToLocal && service.externalTrafficToLocal;
  const all: EndpointSpec[] = [];
  /** The first endpoint with each kind of fault. */
  const faults: { address?: string; port?: string; noPort?: string; otherPorts?: string } = {};
  // Unlike iteration, this makes no objects.
  given.forEach((endpoint, key) => {
    const { ips, portOverrides, scopes } = endpoint;
    const number = resolvePort(port, endpoint, portNames);
    if (number === undefined) {
      if (portOverrides.length === 0) faults.noPort ??= key;
      else faults.otherPorts ??= key;
      return;
    }
    if (!isPort(number)) {
      faults.port ??= `${key} (${number})`;
      return;
    }
    const { v4 = NONE, v6 = NONE } = ips ?? {};
    if (v4.length + v6.length === 0) faults.address ??= key;
    const { internal, external } = scopes ?? { internal: true, external: true };
    // A server that does not know the scope sends only what external clients may use, too.
    const cluster = bothLocal && (scopes?.cluster ?? external);
    for (const text of [...v4, ...v6]) {
      const address = canonicalAddress(text);
      if (address === undefined) {
        faults.address ??= `${key} (${JSON.stringify(text)})`;
        continue;
      }
      const spec = { address, port: number, internal, external };
      all.push(cluster ? { ...spec, cluster } : spec);
    }
  });
  const endpoints = merged(all);
  const leaveOut = (example: string | undefined, reason: string): void => {
    if (example === undefined) return;
    // Without numbers: the text would be a new problem whenever an endpoint is added or removed.
    problems.add(`endpoints ${reason} are left out, such as ${example}`, servicePort);
  };
  leaveOut(faults.address, 'without a valid IP address');
  leaveOut(faults.port, 'whose port is not 1 to 65535');
  const unserved = faults.noPort ?? (endpoints.length === 0 ? faults.otherPorts : undefined);
  if (unserved !== undefined) leaveOut(unserved, `without a port ${portWanted(port)}`);
  return endpoints;
}

/** One for each address and port, without spare capacity, which very many service ports would keep. */
function merged(specs: readonly EndpointSpec[]): readonly EndpointSpec[] {
  if (specs.length < 2 || new Set(specs.map(({ address }) => address)).size === specs.length)
    return specs.slice();
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

function portWanted({ name, targetPortName }: PortMapping): string {
  const names = [...new Set([name, targetPortName])].filter((each) => each !== '');
  return names.length === 0 ? 'or target port' : `named ${names.join(' or ')}`;
}
