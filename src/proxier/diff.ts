import {
  type PortalSpec,
  sameAddresses,
  sameClusterClients,
  sameListen,
  sameTexts,
} from '../portal/portal.ts';
import type {
  AffinitySpec,
  EndpointSpec,
  EngineChange,
  ServicePortSpec,
} from '../proxysocket/spec.ts';
import { sameList } from '../util/same-list.ts';

/** The smallest steps from `before` to `after`; undefined: removed. A changed protocol makes a new service port. */
export function changesBetween(
  before: ServicePortSpec | undefined,
  after: ServicePortSpec | undefined,
): EngineChange[] {
  if (after === undefined)
    return before === undefined ? [] : [{ kind: 'remove', name: before.name }];
  if (before === undefined) return [{ kind: 'set', spec: after }];
  if (before.protocol !== after.protocol) {
    return [
      { kind: 'remove', name: before.name },
      { kind: 'set', spec: after },
    ];
  }
  if (
    !sameListen(before.listen, after.listen) ||
    !sameAddresses(before.portals, after.portals) ||
    !sameAffinity(before.affinity, after.affinity) ||
    before.udpIdleTimeoutMs !== after.udpIdleTimeoutMs ||
    before.keepsClients !== after.keepsClients ||
    before.proxyProtocol !== after.proxyProtocol ||
    !sameTexts(before.proxyProtocolFrom ?? [], after.proxyProtocolFrom ?? [])
  ) {
    return [{ kind: 'set', spec: after }];
  }
  if (sameEndpoints(before.endpoints, after.endpoints)) return [];
  return [{ kind: 'endpoints', name: after.name, endpoints: after.endpoints }];
}

/** Whether the portal's inputs are equal. */
export function samePortals(a: readonly PortalSpec[], b: readonly PortalSpec[]): boolean {
  return sameList(
    a,
    b,
    (one, other) =>
      one.kind === other.kind &&
      one.protocol === other.protocol &&
      one.address === other.address &&
      one.port === other.port &&
      one.traffic === other.traffic &&
      sameClusterClients(one.clusterClients, other.clusterClients) &&
      sameTexts(one.sourceRanges, other.sourceRanges),
  );
}

function sameEndpoints(a: readonly EndpointSpec[], b: readonly EndpointSpec[]): boolean {
  return sameList(
    a,
    b,
    (one, other) =>
      one === other ||
      (one.address === other.address &&
        one.port === other.port &&
        one.internal === other.internal &&
        one.external === other.external &&
        one.cluster === other.cluster &&
        sameTexts(one.drained ?? [], other.drained ?? [])),
  );
}

function sameAffinity(a: AffinitySpec, b: AffinitySpec): boolean {
  if (a.kind === 'none' || b.kind === 'none') return a.kind === b.kind;
  return a.timeoutSeconds === b.timeoutSeconds;
}
