import { setImmediate, setTimeout } from 'node:timers/promises';
import { errorsIn, type ServicePortCounters } from '../proxysocket/counters.ts';
import type { Engine, ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { FailingEndpoints } from '../proxysocket/inspect.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';

export type SnapshotSource = Required<Pick<Engine, 'snapshot' | 'names'>>;

/** Service ports read in one turn of the event loop: a few milliseconds of work. */
export const PER_PART = 250;

/** A list in parts of so many items. */
export function* partsOf<Item>(
  list: readonly Item[],
  size = PER_PART,
): Generator<readonly Item[], void, void> {
  for (let start = 0; start < list.length; start += size) yield list.slice(start, start + size);
}

/** Snapshots of all service ports, in parts; each part is taken when it is requested. */
export function* snapshotParts(
  source: SnapshotSource,
): Generator<readonly ServicePortSnapshot[], void, void> {
  for (const names of partsOf(source.names())) yield source.snapshot(new Set(names));
}

/**
 * Parts of long work, with a turn of the event loop for each, so that traffic does not have to wait. Rejects with the
 * signal's reason when that aborts.
 */
export async function* inTurns<Part>(
  parts: Iterable<Part>,
  signal?: AbortSignal,
): AsyncGenerator<Part, void, void> {
  for (const part of parts) {
    signal?.throwIfAborted();
    yield part;
    await setImmediate();
  }
}

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
  readonly engine: SnapshotSource & Required<Pick<Engine, 'inspect'>>;
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
export type Facts = ReturnType<typeof factsOf>;

/**
 * Reads the state of a service port; cheap, as every row of a list needs it. `usable` endpoints may be used for some
 * traffic; of these, the last connection to `failing` ones failed.
 */
export function factsOf(
  snapshot: ServicePortSnapshot,
  proxier: Services['proxier'],
  failingOfAll: FailingEndpoints,
) {
  const { name, draining, listeners } = snapshot;
  const { drains } = proxier;
  const refusing = failingOfAll.get(name);
  const drained = drains.isDrained(name);
  const failed = failedListeners(snapshot);
  let usable = 0;
  let failing = 0;
  for (const endpoint of proxier.endpointsOf(name)) {
    if (!isUsable(endpoint)) continue;
    if (!drains.isEmpty && drains.isEndpointDrained(name, endpointText(endpoint))) continue;
    usable += 1;
    if (refusing?.has(endpointText(endpoint)) === true) failing += 1;
  }
  const stateOf = (): ServiceState => {
    if (draining === true) return 'removed';
    if (drained) return 'drained';
    if (failed > 0 && failed === listeners.length) return 'down';
    if (usable === 0) return 'no-endpoints';
    if (failing === usable) return 'down';
    return failed > 0 || failing > 0 ? 'degraded' : 'ok';
  };
  return { snapshot, state: stateOf(), failedListeners: failed, usable, failing, drained };
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

/** Asks the engine which endpoints fail; costs almost nothing while none does. */
export async function failingOf(engine: Services['engine']): Promise<FailingEndpoints> {
  const { failing = new Map() } = await engine.inspect({ failing: true, maxConnections: 0 });
  return failing;
}

export interface Traffic {
  /** Connections accepted and UDP sessions started. */
  readonly connections: number;
  /** Bytes from clients to endpoints. */
  readonly bytesIn: number;
  /** Bytes from endpoints to clients. */
  readonly bytesOut: number;
  /** Failed attempts to connect, and clients refused. */
  readonly errors: number;
}

export const NO_TRAFFIC: Traffic = { connections: 0, bytesIn: 0, bytesOut: 0, errors: 0 };
export const TRAFFIC_KEYS = Object.keys(NO_TRAFFIC) as readonly (keyof Traffic)[];

export function addTraffic(sum: Record<keyof Traffic, number>, more: Traffic): void {
  for (const key of TRAFFIC_KEYS) sum[key] += more[key];
}

/** What a service port has carried since its start. */
export function totalsOf(counters: ServicePortCounters): Traffic {
  const { connections, bytesIn, bytesOut } = counters;
  return { connections, bytesIn, bytesOut, errors: errorsIn(counters) };
}

export type ServiceSummary = Awaited<ReturnType<typeof summaryOf>>;

/** Adds all service ports up. Rejects with the signal's reason when that aborts. */
export async function summaryOf({ engine, proxier }: Services, signal?: AbortSignal) {
  const failing = await failingOf(engine);
  const sum = {
    servicePorts: 0,
    states: noStates(),
    endpoints: 0,
    listeners: { open: 0, failed: 0 },
    /** `held`: TCP clients that wait for an endpoint; `tcp` does not count them. */
    active: { tcp: 0, udp: 0, held: 0 },
    totals: { ...NO_TRAFFIC },
  };
  for await (const part of inTurns(snapshotParts(engine), signal)) {
    for (const snapshot of part) {
      const { counters, protocol, listeners, endpoints } = snapshot;
      const { state, failedListeners: failed } = factsOf(snapshot, proxier, failing);
      sum.servicePorts += 1;
      sum.states[state] += 1;
      sum.endpoints += endpoints;
      sum.listeners.failed += failed;
      sum.listeners.open += listeners.length - failed;
      sum.active[protocol === 'TCP' ? 'tcp' : 'udp'] += counters.active;
      sum.active.held += counters.held;
      addTraffic(sum.totals, totalsOf(counters));
    }
  }
  return sum;
}

/** How old a summary for health pages and metrics may be. Milliseconds. */
const MAX_AGE_MS = 1000;
/** At most one part in this many of the time is spent reading, however often health is queried. */
const SHARE = 50;
/** A data path that does not answer must not keep health from answering. Milliseconds. */
const PATIENCE_MS = 1000;

/**
 * Returns a function that reads the summary, in several turns of the event loop; concurrent requests share the result.
 * Undefined as long as the data path has never answered.
 */
export function summaryReader(services: Services) {
  let last: ServiceSummary | undefined;
  /** Until when the last one does. */
  let freshUntil = Number.NEGATIVE_INFINITY;
  let reading: Promise<void> | undefined;
  const readNow = async (): Promise<void> => {
    const begin = performance.now();
    try {
      last = await summaryOf(services);
    } catch {
      // A worker that crashes meanwhile is reported by its pool; the previous summary stays.
    }
    reading = undefined;
    const now = performance.now();
    freshUntil = now + Math.max(MAX_AGE_MS, (now - begin) * SHARE);
  };
  return async (): Promise<ServiceSummary | undefined> => {
    if (performance.now() < freshUntil) return last;
    reading ??= readNow();
    await Promise.race([reading, setTimeout(PATIENCE_MS, undefined, { ref: false })]);
    return last;
  };
}
