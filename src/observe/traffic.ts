import { errorsIn, type ServicePortCounters } from '../proxysocket/counters.ts';

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
