import { errorsIn, type ServicePortCounters } from '../proxysocket/counters.ts';
import type { Rates, Totals, Traffic } from './views.ts';

const KEYS = ['connections', 'bytesIn', 'bytesOut', 'errors'] as const;

export const NO_TRAFFIC: Traffic = { connections: 0, bytesIn: 0, bytesOut: 0, errors: 0 };

/** A sum to add to. */
export type TrafficSum = { -readonly [Key in keyof Traffic]: Traffic[Key] };

export function addTraffic(sum: TrafficSum, more: Traffic): void {
  for (const key of KEYS) sum[key] += more[key];
}

export function totalsOf(counters: ServicePortCounters): Totals {
  const { connections, bytesIn, bytesOut } = counters;
  return { connections, bytesIn, bytesOut, errors: errorsIn(counters) };
}

/** What was counted between two samples, per second. A counter that went back started again from 0. */
export function ratesBetween(before: Totals, now: Totals, seconds: number): Rates {
  const rates = { ...now };
  for (const key of KEYS) {
    const counted = now[key] >= before[key] ? now[key] - before[key] : now[key];
    rates[key] = counted / seconds;
  }
  return rates;
}

export function isSameTraffic(a: Traffic, b: Traffic): boolean {
  return KEYS.every((key) => a[key] === b[key]);
}
