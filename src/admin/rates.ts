import { errorsIn, type ServicePortCounters } from '../proxysocket/counters.ts';
import type { Rates, Totals } from './views.ts';

export const NO_RATES: Rates = { connections: 0, bytesIn: 0, bytesOut: 0, errors: 0 };

export function totalsOf(counters: ServicePortCounters): Totals {
  const { connections, bytesIn, bytesOut } = counters;
  return { connections, bytesIn, bytesOut, errors: errorsIn(counters) };
}

/** What was counted between two looks, for each second. A counter that went back began anew. */
export function ratesBetween(before: Totals, now: Totals, seconds: number): Rates {
  const per = (former: number, present: number): number =>
    (present >= former ? present - former : present) / seconds;
  return {
    connections: per(before.connections, now.connections),
    bytesIn: per(before.bytesIn, now.bytesIn),
    bytesOut: per(before.bytesOut, now.bytesOut),
    errors: per(before.errors, now.errors),
  };
}
