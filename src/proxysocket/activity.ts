import { CONNECT_ERROR_CAUSES, PLAIN_COUNTERS, type ServicePortCounters } from './counters.ts';

/** What tells whether anything has moved, of all service ports together: as long as it is the same, nothing has. */
export interface Activity {
  /** With several workers, of each of them. */
  readonly servicePorts: number;
  /** The sum of all counters of events, bytes and datagrams. */
  readonly counted: number;
  /** Relays and UDP sessions that exist now. */
  readonly active: number;
}

export const NO_ACTIVITY: Activity = { servicePorts: 0, counted: 0, active: 0 };

/** Plain counters that say how many there are now, and so go down as well. */
const GAUGES: ReadonlySet<string> = new Set(['active', 'held']);

/** Whether a plain counter only grows. */
export const GROWS: readonly boolean[] = PLAIN_COUNTERS.map((name) => !GAUGES.has(name));
const GROWING = PLAIN_COUNTERS.filter((_, index) => GROWS[index]);

/** All that was counted of a service port. */
export function countedIn(counters: ServicePortCounters): number {
  let sum = 0;
  for (const name of GROWING) sum += counters[name];
  for (const cause of CONNECT_ERROR_CAUSES) sum += counters.connectErrors[cause];
  return sum;
}

export function addActivity(one: Activity, other: Activity): Activity {
  return {
    servicePorts: one.servicePorts + other.servicePorts,
    counted: one.counted + other.counted,
    active: one.active + other.active,
  };
}

export function isSameActivity(one: Activity, other: Activity): boolean {
  return (
    one.servicePorts === other.servicePorts &&
    one.counted === other.counted &&
    one.active === other.active
  );
}
