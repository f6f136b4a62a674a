import type { Endpoint, PortMapping } from '../api/generated/localv1/api.ts';

/**
 * The port of an endpoint that belongs to a service port; undefined when it has none. It may be out
 * of range.
 *
 * An endpoint's list says which of the service's ports it serves, by the name of the service port.
 * In order: the entry of that name; the entry of the target port's name, unless another port of the
 * service is called that; the numeric target port, where the endpoint has no list or nothing has
 * a name. kpng does not look for the empty name, so there an unnamed service port with a named
 * target port never resolves; and it does not fall back to the numeric target port for an endpoint
 * without a list.
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

/** From so many ports on an endpoint's list is indexed: each port of the service looks into it. */
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
