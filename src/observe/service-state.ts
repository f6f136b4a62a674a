import type { Engine, ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { FailingEndpoints } from '../proxysocket/inspect.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';

/**
 * Every state, worst first: the order in which a list is sorted by state.
 *
 * - `down`: no client gets through: no address could be opened, or the last connection to every endpoint failed.
 * - `degraded`: serves clients, but not on every address, or an endpoint refuses.
 * - `no-endpoints`: there is no endpoint that may be used.
 * - `drained`: an operator drains it; accepts no new clients.
 * - `removed`: the service port is gone, and connections of it still run.
 * - `ok`: serves clients.
 */
export const SERVICE_STATES = [
  'down',
  'degraded',
  'no-endpoints',
  'drained',
  'removed',
  'ok',
] as const;
export type ServiceState = (typeof SERVICE_STATES)[number];

export interface Services {
  readonly engine: Required<Pick<Engine, 'snapshot' | 'names' | 'inspect'>>;
  readonly proxier: {
    readonly drains: {
      readonly isEmpty: boolean;
      isDrained(servicePort: string): boolean;
      isEndpointDrained(servicePort: string, endpoint: string): boolean;
    };
    endpointsOf(servicePort: string): readonly EndpointSpec[];
  };
}

/** The state of a service port, and what it is derived from. */
export interface Facts {
  readonly snapshot: ServicePortSnapshot;
  readonly state: ServiceState;
  readonly failedListeners: number;
  /** Endpoints that may be used for some traffic. */
  readonly usable: number;
  /** Endpoints to which the last connection failed. */
  readonly failing: number;
  readonly drained: boolean;
}

/** Reads the state of a service port; cheap, as every row of a list needs it. */
export function factsOf(
  snapshot: ServicePortSnapshot,
  proxier: Services['proxier'],
  failingOfAll: FailingEndpoints,
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
  const facts = { usable, failing, drained: drains.isDrained(name) };
  const failed = failedListeners(snapshot);
  const state = stateOf({ snapshot, failedListeners: failed, ...facts });
  return { snapshot, state, failedListeners: failed, ...facts };
}

export function noStates(): Record<ServiceState, number> {
  return { ok: 0, degraded: 0, down: 0, 'no-endpoints': 0, drained: 0, removed: 0 };
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

function stateOf(facts: Omit<Facts, 'state'>): ServiceState {
  const { snapshot, failedListeners: failed, usable, failing, drained } = facts;
  if (snapshot.draining === true) return 'removed';
  if (drained) return 'drained';
  if (failed > 0 && failed === snapshot.listeners.length) return 'down';
  if (usable === 0) return 'no-endpoints';
  if (failing === usable) return 'down';
  return failed > 0 || failing > 0 ? 'degraded' : 'ok';
}

/** Asks the engine which endpoints fail; costs almost nothing while none does. */
export async function failingOf(engine: Services['engine']): Promise<FailingEndpoints> {
  const { failing = new Map() } = await engine.inspect({ failing: true, maxConnections: 0 });
  return failing;
}
