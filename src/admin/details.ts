import {
  CONNECT_ERROR_CAUSES,
  CONNECT_SECONDS_BUCKETS,
  type ServicePortCounters,
} from '../proxysocket/counters.ts';
import type { DesiredServicePort } from '../proxier/desired.ts';
import type { Inspection } from '../proxysocket/inspect.ts';
import type { EndpointSpec, ListenerStatus } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';
import { serviceOf } from '../proxier/drains.ts';
import { groupFailing } from './failing.ts';
import type { Sampler } from './sampler.ts';
import { endpointText, factsOf, isUsable, stateOf, type Facts } from './service-state.ts';
import { rowOf } from './services.ts';
import type { ProxySubject } from './subject.ts';
import type {
  ConnectTimes,
  EndpointState,
  EndpointView,
  ListenerView,
  ProblemView,
  ServiceDetails,
} from './views.ts';

/** Endpoints of one service port that are told, at most. */
export const MAX_ENDPOINTS = 1000;

/** Service ports of that name, or of the service of that name. */
export function namesOf(subject: ProxySubject, name: string): string[] {
  const exact = subject.engine.snapshot(new Set([name])).map((snapshot) => snapshot.name);
  if (exact.length > 0 || name.includes(':')) return exact;
  return subject
    .desired()
    .map(({ spec }) => spec.name)
    .filter((each) => serviceOf(each) === name);
}

/** Everything about some service ports. Asks the engine about their endpoints once. */
export async function describeServices(
  subject: ProxySubject,
  rates: Sampler,
  names: readonly string[],
): Promise<ServiceDetails[]> {
  const { engine, proxier } = subject;
  const inspection = await engine.inspect({ servicePorts: names, maxConnections: 0 });
  const wanted = new Set(names);
  const desired = new Map(
    subject
      .desired()
      .flatMap((port) => (wanted.has(port.spec.name) ? [[port.spec.name, port]] : [])),
  );
  const seen = groupEndpoints(inspection);
  const failing = groupFailing(inspection.endpoints);
  return engine.snapshot(wanted).map((snapshot) => {
    const { name } = snapshot;
    const facts = factsOf(snapshot, proxier, failing);
    return detailsOf(subject, rates, facts, desired.get(name), seen.get(name) ?? new Map());
  });
}

type SeenEndpoints = ReadonlyMap<string, Inspection['endpoints'][number]>;

function groupEndpoints({ endpoints }: Inspection): Map<string, SeenEndpoints> {
  const groups = new Map<string, Map<string, Inspection['endpoints'][number]>>();
  for (const each of endpoints) {
    const group = groups.get(each.servicePort) ?? new Map<string, typeof each>();
    group.set(each.endpoint, each);
    groups.set(each.servicePort, group);
  }
  return groups;
}

function detailsOf(
  subject: ProxySubject,
  rates: Sampler,
  facts: Facts,
  desired: DesiredServicePort | undefined,
  seen: SeenEndpoints,
): ServiceDetails {
  const { snapshot } = facts;
  const { name, counters } = snapshot;
  const { affinity } = desired?.spec ?? {};
  return {
    ...rowOf({ ...facts, state: stateOf(facts) }, desired, rates),
    affinity: affinity?.kind === 'clientIP' ? { clientIP: affinity.timeoutSeconds } : 'none',
    listenersList: snapshot.listeners.map(listenerView),
    endpointsList: endpointsOf(subject, name, facts.drained, seen),
    connectTimes: connectTimesOf(counters),
    connectErrors: connectErrorsOf(counters),
    counters: otherCounters(counters),
    problems: problemsOf(subject.problems(), name),
  };
}

function endpointsOf(
  { proxier }: ProxySubject,
  name: string,
  allDrained: boolean,
  seen: SeenEndpoints,
): EndpointView[] {
  const list: EndpointView[] = [];
  for (const spec of proxier.endpointsOf(name).slice(0, MAX_ENDPOINTS)) {
    const address = endpointText(spec);
    const known = seen.get(address);
    const drained = allDrained || proxier.drains.isEndpointDrained(name, address);
    const state = endpointState(spec, drained, known?.failing === true);
    const traffic = (['internal', 'external'] as const).filter((kind) => spec[kind]);
    list.push({ address, state, traffic, ...(known !== undefined && { active: known.active }) });
  }
  return list;
}

function endpointState(spec: EndpointSpec, drained: boolean, failing: boolean): EndpointState {
  if (!isUsable(spec)) return 'unused';
  if (drained) return 'drained';
  return failing ? 'failing' : 'ready';
}

function listenerView(status: ListenerStatus): ListenerView {
  const { address, port, traffic } = status.listen;
  if (status.state === 'listening') {
    const bound = formatHostPort({ host: address, port: status.boundPort });
    return { address: bound, traffic, state: 'listening' };
  }
  const { code, cause } = status;
  return {
    address: formatHostPort({ host: address, port }),
    traffic,
    state: 'failed',
    code,
    cause,
  };
}

/** From the histogram: the upper bound of the bucket that a quantile falls in; null beyond the last. */
export function connectTimesOf({ connectSeconds }: ServicePortCounters): ConnectTimes {
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

function connectErrorsOf({ connectErrors }: ServicePortCounters): ServiceDetails['connectErrors'] {
  return Object.fromEntries(
    CONNECT_ERROR_CAUSES.flatMap((cause) =>
      connectErrors[cause] > 0 ? [[cause, connectErrors[cause]]] : [],
    ),
  );
}

const OTHER_COUNTERS = [
  'retries',
  'rejectedNoEndpoint',
  'rejectedDrained',
  'rejectedConnectFailed',
  'rejectedLimit',
  'rejectedSource',
  'rejectedHoldTimeout',
  'held',
  'heldTotal',
  'halfCloseTimeouts',
  'idleTimeouts',
  'datagramsIn',
  'datagramsOut',
  'datagramsDropped',
  'sessionsEvicted',
] as const satisfies readonly (keyof ServicePortCounters)[];

function otherCounters(counters: ServicePortCounters): Record<string, number> {
  return Object.fromEntries(
    OTHER_COUNTERS.flatMap((name) => (counters[name] > 0 ? [[name, counters[name]]] : [])),
  );
}

/** Problems that name the service port or its service; others may concern it as well. */
function problemsOf(problems: readonly ProblemView[], name: string): ProblemView[] {
  const service = serviceOf(name);
  return problems.filter(({ servicePort }) => servicePort === name || servicePort === service);
}
