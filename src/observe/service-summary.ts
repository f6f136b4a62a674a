import { errorsIn, type ServicePortCounters } from '../proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { FailingEndpoints } from '../proxysocket/inspect.ts';
import type { Clock } from '../util/clock.ts';
import { runInParts, type Parts, snapshotParts } from './parts.ts';
import { factsOf, failingOf, noStates, type Services, type ServiceState } from './service-state.ts';

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

export const TRAFFIC_KEYS = ['connections', 'bytesIn', 'bytesOut', 'errors'] as const;

export const NO_TRAFFIC: Traffic = { connections: 0, bytesIn: 0, bytesOut: 0, errors: 0 };

/** A sum to add to. */
export type TrafficSum = { -readonly [Key in keyof Traffic]: Traffic[Key] };

export function addTraffic(sum: TrafficSum, more: Traffic): void {
  for (const key of TRAFFIC_KEYS) sum[key] += more[key];
}

/** What a service port has carried since its start. */
export function totalsOf(counters: ServicePortCounters): Traffic {
  const { connections, bytesIn, bytesOut } = counters;
  return { connections, bytesIn, bytesOut, errors: errorsIn(counters) };
}

export interface ServiceSummary {
  readonly servicePorts: number;
  readonly states: Readonly<Record<ServiceState, number>>;
  readonly endpoints: number;
  readonly listeners: { readonly open: number; readonly failed: number };
  /** `held`: TCP clients that wait for an endpoint; `tcp` does not count them. */
  readonly active: { readonly tcp: number; readonly udp: number; readonly held: number };
  readonly totals: Traffic;
}

/** Adds all service ports up; `failing`: endpoints to which the last connection failed. */
export function* summaryOf(services: Services, failing: FailingEndpoints): Parts<ServiceSummary> {
  const states = noStates();
  const listeners = { open: 0, failed: 0 };
  const active = { tcp: 0, udp: 0, held: 0 };
  const totals = { ...NO_TRAFFIC };
  let servicePorts = 0;
  let endpoints = 0;
  const add = (snapshot: ServicePortSnapshot): void => {
    servicePorts += 1;
    const { counters, protocol } = snapshot;
    const { state, failedListeners } = factsOf(snapshot, services.proxier, failing);
    states[state] += 1;
    endpoints += snapshot.endpoints;
    listeners.failed += failedListeners;
    listeners.open += snapshot.listeners.length - failedListeners;
    active[protocol === 'TCP' ? 'tcp' : 'udp'] += counters.active;
    active.held += counters.held;
    addTraffic(totals, totalsOf(counters));
  };
  for (const part of snapshotParts(services.engine)) {
    part.forEach(add);
    yield;
  }
  return { servicePorts, states, endpoints, listeners, active, totals };
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
export function summaryReader(services: Services, clock: Clock) {
  let last: ServiceSummary | undefined;
  /** Until when the last one does. */
  let freshUntil = Number.NEGATIVE_INFINITY;
  let reading: Promise<ServiceSummary | undefined> | undefined;
  const readNow = async (): Promise<ServiceSummary | undefined> => {
    const begin = clock.now();
    try {
      last = await runInParts(summaryOf(services, await failingOf(services.engine)));
    } catch {
      // A worker that crashes meanwhile is reported by its pool; the previous summary stays.
    }
    reading = undefined;
    const now = clock.now();
    freshUntil = now + Math.max(MAX_AGE_MS, (now - begin) * SHARE);
    return last;
  };
  return async (): Promise<ServiceSummary | undefined> => {
    if (clock.now() < freshUntil) return last;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const timer = clock.setTimer(PATIENCE_MS, () => resolve(undefined));
    reading ??= readNow();
    const found = await Promise.race([reading, promise]);
    timer.cancel();
    return found ?? last;
  };
}
