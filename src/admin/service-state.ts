import type { DesiredServicePort } from '../proxier/wanted.ts';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';
import { runInParts, type Parts, snapshotParts } from '../observe/parts.ts';
import type { ProxySubject } from './subject.ts';
import type { ServiceState } from './views.ts';

/** Every state, worst first: the order in which a list is sorted by state. */
export const SERVICE_STATES = [
  'down',
  'degraded',
  'no-endpoints',
  'drained',
  'removed',
  'ok',
] as const satisfies readonly ServiceState[];

/** What the state of a service port is derived from. */
export interface Facts {
  readonly snapshot: ServicePortSnapshot;
  /** Endpoints that may be used for some traffic. */
  readonly usable: number;
  /** Those of them that are skipped because they refuse connections. */
  readonly failing: number;
  readonly drained: boolean;
}

/** Collects the input for the state of a service port; cheap, as every row of a list needs it. */
export function factsOf(
  snapshot: ServicePortSnapshot,
  proxier: Pick<ProxySubject['proxier'], 'drains' | 'endpointsOf'>,
  failingOfAll: Failing,
): Facts {
  const { name } = snapshot;
  const { drains } = proxier;
  const refusing = failingOfAll.get(name);
  let usable = 0;
  let failing = 0;
  for (const endpoint of proxier.endpointsOf(name)) {
    if (!isUsable(endpoint)) continue;
    if (!drains.isEmpty && drains.isEndpointDrained(name, endpointText(endpoint))) continue;
    usable += 1;
    if (refusing?.has(endpointText(endpoint)) === true) failing += 1;
  }
  return { snapshot, usable, failing, drained: drains.isDrained(name) };
}

export function isUsable({ internal, external }: EndpointSpec): boolean {
  return internal || external;
}

export function endpointText({ address, port }: EndpointSpec): string {
  return formatHostPort({ host: address, port });
}

export function failedListeners({ listeners }: ServicePortSnapshot): number {
  let failed = 0;
  for (const { state } of listeners) if (state === 'failed') failed += 1;
  return failed;
}

export function stateOf({ snapshot, usable, failing, drained }: Facts): ServiceState {
  if (snapshot.draining === true) return 'removed';
  if (drained) return 'drained';
  const failed = failedListeners(snapshot);
  if (failed > 0 && failed === snapshot.listeners.length) return 'down';
  if (usable === 0) return 'no-endpoints';
  if (failing === usable) return 'down';
  return failed > 0 || failing > 0 ? 'degraded' : 'ok';
}

/** The addresses that clients use, a node port as `*:port`. */
export function addressesOf(port: DesiredServicePort | undefined): string[] {
  return (port?.portals ?? []).map(({ address, port: number }) =>
    address === undefined ? `*:${number}` : formatHostPort({ host: address, port: number }),
  );
}

/** Maximum number of service ports whose endpoints are read for a list. */
export const MAX_INSPECTED_PORTS = 1000;

/** By service port: endpoints, as `ip:port`, that are skipped because connections to them failed. */
export type Failing = ReadonlyMap<string, ReadonlySet<string>>;

export const NONE_FAILING: Failing = new Map();

/**
 * Queries the engine, once, for endpoints that refuse connections. Only service ports with a failed connection
 * attempt are read, so that a list of thousands of healthy ones costs nothing.
 */
export async function failingOf(
  engine: Pick<ProxySubject['engine'], 'snapshot' | 'names' | 'inspect'>,
  signal?: AbortSignal,
): Promise<Failing> {
  const servicePorts = await runInParts(unavailablePorts(engine), signal);
  if (servicePorts.length === 0) return NONE_FAILING;
  const { endpoints } = await engine.inspect({ servicePorts, maxConnections: 0 });
  return groupFailing(endpoints);
}

/** Service ports with at least one failed connection attempt. */
function* unavailablePorts(
  engine: Pick<ProxySubject['engine'], 'snapshot' | 'names'>,
): Parts<string[]> {
  const found: string[] = [];
  for (const part of snapshotParts(engine)) {
    for (const { name, counters } of part) {
      if (!Object.values(counters.connectErrors).some((count) => count > 0)) continue;
      if (found.push(name) === MAX_INSPECTED_PORTS) return found;
    }
    yield;
  }
  return found;
}

/** Failing endpoints, by service port. */
export function groupFailing(
  endpoints: readonly {
    readonly servicePort: string;
    readonly endpoint: string;
    readonly failing: boolean;
  }[],
): Failing {
  const failing = new Map<string, Set<string>>();
  for (const { servicePort, endpoint, failing: fails } of endpoints) {
    if (!fails) continue;
    const group = failing.get(servicePort);
    if (group === undefined) failing.set(servicePort, new Set([endpoint]));
    else group.add(endpoint);
  }
  return failing;
}
