import { CONNECT_SECONDS_BUCKETS, type ServicePortCounters } from '../proxysocket/counters.ts';
import { failingAmong, type EndpointSnapshot } from '../proxysocket/inspect.ts';
import type { EndpointSpec, ListenerStatus } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';
import { serviceOf } from '../proxier/drains.ts';
import { endpointText, type Facts, factsOf, isUsable } from '../observe/service-state.ts';
import type { Sampler } from './sampler.ts';
import { named, rowOf } from './services.ts';
import type { ProxySubject } from './subject.ts';

/** Maximum number of endpoints of one service port in a response. */
export const MAX_ENDPOINTS = 1000;

/** Service ports with that name, or of the service with that name. */
export function namesOf(subject: ProxySubject, name: string): string[] {
  const exact = subject.engine.snapshot(new Set([name])).map((snapshot) => snapshot.name);
  if (exact.length > 0 || name.includes(':')) return exact;
  return subject
    .desired()
    .map(({ spec }) => spec.name)
    .filter((each) => serviceOf(each) === name);
}

/** Everything about one service port. */
export type ServiceDetails = Awaited<ReturnType<typeof describeServices>>[number];
/** An endpoint; without figures if the engine does not know it. */
export type EndpointView = ServiceDetails['endpointsList'][number];
export type ListenerView = ServiceDetails['listenersList'][number];

/** Details of some service ports. Queries the engine about their endpoints once. */
export async function describeServices(
  subject: ProxySubject,
  rates: Sampler,
  names: readonly string[],
) {
  const { engine, proxier } = subject;
  const { endpoints } = await engine.inspect({ servicePorts: names, maxConnections: 0 });
  const wanted = new Set(names);
  const desired = named(subject.desired().filter(({ spec }) => wanted.has(spec.name)));
  const seen = new Map(endpoints.map((each) => [keyOf(each.servicePort, each.endpoint), each]));
  const failing = failingAmong(endpoints);
  return engine.snapshot(wanted).map((snapshot) => {
    const { name, counters, listeners } = snapshot;
    const facts = factsOf(snapshot, proxier, failing);
    const port = desired.get(name);
    const { affinity } = port?.spec ?? {};
    const service = serviceOf(name);
    return Object.assign(rowOf(facts, port, rates), {
      affinity:
        affinity?.kind === 'clientIP' ? { clientIP: affinity.timeoutSeconds } : ('none' as const),
      listenersList: listeners.map(listenerView),
      endpointsList: endpointsOf(subject, facts, seen),
      connectTimes: connectTimesOf(counters),
      connectErrors: notZero(counters.connectErrors),
      counters: notZero(counters, IN_ROW),
      // The problem may affect other service ports, too.
      problems: subject
        .problems()
        .filter(({ servicePort }) => servicePort === name || servicePort === service),
    });
  });
}

function keyOf(servicePort: string, endpoint: string): string {
  return `${servicePort} ${endpoint}`;
}

function endpointsOf(
  { proxier }: ProxySubject,
  { snapshot: { name }, drained }: Facts,
  seen: ReadonlyMap<string, EndpointSnapshot>,
) {
  const some = proxier.endpointsOf(name).slice(0, MAX_ENDPOINTS);
  return some.map((spec) => {
    const address = endpointText(spec);
    const known = seen.get(keyOf(name, address));
    const isDrained = drained || proxier.drains.isEndpointDrained(name, address);
    const state = endpointState(spec, isDrained, known?.failing === true);
    const traffic = (['internal', 'external'] as const).filter((kind) => spec[kind]);
    const figures: Partial<ReturnType<typeof figuresOf>> =
      known === undefined ? {} : figuresOf(known);
    return Object.assign({ address, state, traffic }, figures);
  });
}

/** The figures of an endpoint since it joined its service port. */
function figuresOf(known: EndpointSnapshot) {
  const { active, connections, bytesIn, bytesOut, errors, connectMs, failingMs, lastError } = known;
  return {
    active,
    connections,
    bytesIn,
    bytesOut,
    errors,
    connectSeconds: connectMs === undefined ? null : connectMs / 1000,
    failingSince: failingMs === undefined ? null : isoAgo(failingMs),
    lastError:
      lastError === undefined ? null : { cause: lastError.cause, at: isoAgo(lastError.agoMs) },
  };
}

function isoAgo(ms: number): string {
  return new Date(Date.now() - ms).toISOString();
}

/**
 * - `ready`: gets its share of new connections.
 * - `failing`: the last connection to it failed; it is skipped for a while after each failure.
 * - `drained`: an operator drains it; gets no new connections.
 * - `unused`: not used: terminating, or excluded by a traffic policy.
 */
export type EndpointState = 'ready' | 'failing' | 'drained' | 'unused';

function endpointState(spec: EndpointSpec, drained: boolean, failing: boolean): EndpointState {
  if (!isUsable(spec)) return 'unused';
  if (drained) return 'drained';
  return failing ? 'failing' : 'ready';
}

function listenerView(status: ListenerStatus) {
  const { address: host, port, traffic } = status.listen;
  if (status.state === 'listening') {
    const { state, boundPort } = status;
    return { address: formatHostPort({ host, port: boundPort }), traffic, state };
  }
  const { state, code, cause } = status;
  return { address: formatHostPort({ host, port }), traffic, state, code, cause };
}

/** From the histogram: the upper bound of the bucket that the quantile falls in; null beyond the last bucket. */
function connectTimesOf({ connectSeconds }: ServicePortCounters) {
  const counts = [...connectSeconds.counts];
  const count = counts.reduce((sum, each) => sum + each, 0);
  const quantile = (part: number): number | null => {
    if (count === 0) return null;
    let below = 0;
    const index = counts.findIndex((each) => (below += each) >= part * count);
    return CONNECT_SECONDS_BUCKETS[index] ?? null;
  };
  return { count, p50: quantile(0.5), p90: quantile(0.9), p99: quantile(0.99) };
}

/** Counters that the row of the list already has. */
const IN_ROW: readonly string[] = ['connections', 'active', 'bytesIn', 'bytesOut'];

function notZero(counters: object, without: readonly string[] = []): Record<string, number> {
  const all = Object.entries(counters) as [string, unknown][];
  return Object.fromEntries(
    all.flatMap(([name, value]) =>
      typeof value === 'number' && value > 0 && !without.includes(name) ? [[name, value]] : [],
    ),
  );
}
