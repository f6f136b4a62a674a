import { isIP } from 'node:net';
import { endpointText } from '../../roundrobin/endpoint.ts';
import { formatHostPort } from '../../util/host-port.ts';
import { listChanges } from '../../util/compare.ts';
import { isPort } from '../../util/port-range.ts';
import { endpointInvalid } from '../events.ts';
import type { EndpointChanges, EndpointSpec, EngineChange, ServicePortSpec } from '../spec.ts';

/** Whether an endpoint can be used. The socket API would resolve a host name, and throw at an invalid port. */
export function isUsable(servicePort: string, { address, port }: EndpointSpec): boolean {
  if (isIP(address) !== 0 && isPort(port)) return true;
  if (endpointInvalid.hasSubscribers) {
    endpointInvalid.publish({ servicePort, endpoint: formatHostPort({ host: address, port }) });
  }
  return false;
}

/** From this many endpoints on, a change of a few is sent to workers as a patch. */
const LARGE = 1000;

/**
 * A batch with changes of a few endpoints of very many as patches, which have the same effect if they are applied twice.
 * `specOf`: the service ports before the batch.
 */
export function withPatches(
  changes: readonly EngineChange[],
  specOf: (name: string) => ServicePortSpec | undefined,
): readonly EngineChange[] {
  return changes.map((change) => {
    if (change.kind !== 'endpoints' || change.endpoints.length < LARGE) return change;
    return patchTo(change.endpoints, specOf(change.name)) ?? change;
  });
}

/** Undefined: few endpoints are the same objects, or drains differ, so all have to be sent. */
function patchTo(
  endpoints: readonly EndpointSpec[],
  before: ServicePortSpec | undefined,
): EngineChange | undefined {
  if (before === undefined) return undefined;
  const { removed, added: set } = listChanges(before.endpoints, endpoints);
  const changed = [...removed, ...set];
  if (changed.length > endpoints.length / 4) return undefined;
  if (changed.some(({ drained }) => drained !== undefined)) return undefined;
  const stay = new Set(set.map(endpointText));
  const gone = removed.filter((each) => !stay.has(endpointText(each)));
  return { kind: 'patch', name: before.name, removed: gone, set };
}

export function endpointsAfter(
  before: readonly EndpointSpec[],
  change: EndpointChanges | { readonly endpoints: readonly EndpointSpec[] },
): readonly EndpointSpec[] {
  if ('endpoints' in change) return change.endpoints;
  const changed = new Set([...change.removed, ...change.set].map(endpointText));
  return [...before.filter((each) => !changed.has(endpointText(each))), ...change.set];
}
