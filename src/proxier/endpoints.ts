import type { Endpoint, PortMapping } from '../api/generated/localv1/api.ts';
import { KpngError } from '../errors.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import type { ServiceEntry } from '../store/local-view.ts';
import { canonicalAddress, isPort } from './address.ts';

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
  /** Results for the next update, which reuses equal parts. */
  readonly rows: Rows;
}

type Endpoints = ServiceEntry['endpoints'];

/** The rows of the endpoints: one for each address, in the order of the endpoints. */
export interface Rows {
  readonly of: Endpoints;
  readonly sources: readonly Endpoint[];
  /** Undefined: the endpoint is unusable. */
  readonly specs: readonly (EndpointSpec | undefined)[];
  /** Whether no two rows have the same address and port. */
  readonly distinct: boolean;
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
 * `previous`: the previous result; unchanged endpoints give the same objects.
 */
export function endpointsOf(
  servicePort: string,
  port: PortMapping,
  entry: ServiceEntry,
  portNames: ReadonlySet<string>,
  previous?: Rows,
): ResolvedEndpoints {
  const { internalTrafficToLocal, externalTrafficToLocal } = entry.service;
  const bothLocal = internalTrafficToLocal && externalTrafficToLocal;
  const faults: Faults = {};
  const reused = previous && new PreviousRows(previous);
  const sources: Endpoint[] = [];
  const rows: (EndpointSpec | undefined)[] = [];
  const fresh: EndpointSpec[] = [];
  for (const [key, endpoint] of entry.endpoints) {
    if (reused?.take(key, endpoint, rows) !== true) {
      const specs = specsOf(
        key,
        endpoint,
        resolvePort(port, endpoint, portNames),
        bothLocal,
        faults,
      );
      for (const spec of specs) {
        if (spec !== undefined) fresh.push(spec);
        rows.push(spec);
      }
    }
    while (sources.length < rows.length) sources.push(endpoint);
  }
  // Copied below: pushing reserves room for 16 more, which very many service ports would keep.
  const all = rows.includes(undefined) ? rows.filter((spec) => spec !== undefined) : rows;
  const specs = all.slice() as readonly EndpointSpec[];
  const endpoints = previous?.distinct === true && !meets(fresh, specs) ? specs : merged(specs);
  return {
    endpoints,
    problems: problemsOf(servicePort, port, endpoints.length === 0, faults),
    rows: { of: entry.endpoints, sources, specs: rows, distinct: endpoints === specs },
  };
}

/** Walks the previous and the current rows in parallel. Both are in key order. */
class PreviousRows {
  readonly #rows: Rows;
  #at = 0;

  constructor(rows: Rows) {
    this.#rows = rows;
  }

  /** Adds the rows of an unchanged endpoint; false: it changed, or has a fault to report. */
  take(key: string, endpoint: Endpoint, to: (EndpointSpec | undefined)[]): boolean {
    const { of, sources, specs } = this.#rows;
    let at = this.#at;
    if (sources[at] !== endpoint) {
      // It is new, or some before it were removed.
      if (of.get(key) !== endpoint) return false;
      while (at < sources.length && sources[at] !== endpoint) at += 1;
    }
    const start = at;
    while (at < sources.length && sources[at] === endpoint && specs[at] !== undefined) at += 1;
    const whole = at > start && sources[at] !== endpoint;
    if (whole) for (let row = start; row < at; row += 1) to.push(specs[row]);
    while (at < sources.length && sources[at] === endpoint) at += 1;
    this.#at = at;
    return whole;
  }
}

/** The rows of one endpoint. Undefined: unusable, with the reason recorded. */
function specsOf(
  key: string,
  { ips, portOverrides, scopes }: Endpoint,
  number: number | undefined,
  bothLocal: boolean,
  faults: Faults,
): (EndpointSpec | undefined)[] {
  if (number === undefined) {
    if (portOverrides.length === 0) faults.noPort ??= key;
    else faults.notServed ??= key;
    return [undefined];
  }
  if (!isPort(number)) {
    faults.badPort ??= `${key} (${number})`;
    return [undefined];
  }
  const texts = [...(ips?.v4 ?? []), ...(ips?.v6 ?? [])];
  if (texts.length === 0) {
    faults.badAddress ??= key;
    return [undefined];
  }
  const { internal, external } = scopes ?? { internal: true, external: true };
  // A server that does not know the scope sends only what external clients may use, too.
  const cluster = bothLocal && (scopes?.cluster ?? external);
  return texts.map((text) => {
    const address = canonicalAddress(text);
    if (address === undefined) faults.badAddress ??= `${key} (${JSON.stringify(text)})`;
    if (address === undefined) return undefined;
    const spec = { address, port: number, internal, external };
    return cluster ? Object.assign(spec, { cluster }) : spec;
  });
}

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

/** One for each address and port; the list itself if there are no duplicates. */
function merged(specs: readonly EndpointSpec[]): readonly EndpointSpec[] {
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
  return byAddress.size === specs.length ? specs : [...byAddress.values()];
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
    const message = `${servicePort}: endpoints ${reason} are left out, such as ${example}`;
    problems.push(new KpngError('KPNG_SERVICE_INVALID', message, { servicePort }));
  };
  leftOut(badAddress, 'without a valid IP address');
  leftOut(badPort, 'whose port is not 1 to 65535');
  leftOut(noPort ?? (none ? notServed : undefined), `without a port ${portWanted(port)}`);
  return problems;
}

function portWanted({ name, targetPortName }: PortMapping): string {
  const names = [...new Set([name, targetPortName])].filter((each) => each !== '');
  return names.length === 0 ? 'or target port' : `named ${names.join(' or ')}`;
}
