import { errorsIn, type ServicePortCounters } from '../counters.ts';

/** A summary of all service ports: as long as it is the same, nothing has moved. */
export interface Activity {
  /** With several workers, of each of them. */
  readonly servicePorts: number;
  /** The sum of all counters of events, bytes and datagrams. */
  readonly counted: number;
  /** Relays and UDP sessions that exist now. */
  readonly active: number;
}

export const NO_ACTIVITY: Activity = { servicePorts: 0, counted: 0, active: 0 };

/** All that was counted of a service port, but for gauges. One by one, for the reason of `errorsIn`. */
export function countedIn(counters: ServicePortCounters): number {
  return (
    counters.connections +
    counters.bytesIn +
    counters.bytesOut +
    counters.datagramsIn +
    counters.datagramsOut +
    counters.datagramsDropped +
    counters.sessionsEvicted +
    counters.retries +
    counters.heldTotal +
    counters.halfCloseTimeouts +
    counters.idleTimeouts +
    errorsIn(counters)
  );
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
