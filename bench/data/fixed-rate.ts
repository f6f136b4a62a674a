/**
 * Latency while every peer is asked for the same: half of what the slowest one can do. At its maximum
 * a proxy only shows how long its queue is.
 */
import type { DataLoad } from './loads/load.ts';
import { ownRequests } from './loads/own.ts';
import { SOCKPERF, sockperf } from './loads/sockperf.ts';
import type { DataLoadResult } from './result.ts';

const CONNECTIONS = 64;

/** A load at a fixed rate, and the load whose slowest peer says how fast. */
interface Paced {
  /** Load whose maximum is asked for half. */
  readonly after: string;
  readonly at: (perSecond: number) => DataLoad;
}

function requests(perSecond: number): DataLoad {
  return {
    word: 'requests-paced',
    title: `small requests, ${CONNECTIONS} connections kept, ${perSecond.toLocaleString('en')} a second`,
    protocol: 'TCP',
    tool: undefined,
    rate: { name: 'k/s', factor: 1e-3 },
    cpu: { name: 'µs/request', factor: 1e6 },
    run: (how) => ownRequests(how, CONNECTIONS, perSecond),
  };
}

function datagrams(perSecond: number): DataLoad {
  return {
    word: 'udp-paced',
    title: `UDP round trips, 1 client, ${perSecond.toLocaleString('en')} a second`,
    protocol: 'UDP',
    tool: SOCKPERF,
    rate: { name: 'k/s', factor: 1e-3 },
    cpu: { name: 'µs/round trip', factor: 1e6 },
    run: (how) => sockperf(how, 'under-load', ['--mps', String(perSecond), '--reply-every', '1']),
  };
}

export const PACED: readonly Paced[] = [
  { after: `requests-${CONNECTIONS}`, at: requests },
  { after: 'udp-1', at: datagrams },
];

/** Half of the slowest peer's maximum, in whole tens a second. Undefined when no peer was measured. */
export function halfOfSlowest({ results }: DataLoadResult): number | undefined {
  const rates = Object.values(results).map(({ rate }) => rate.median * 1000);
  return rates.length === 0 ? undefined : Math.max(10, Math.floor(Math.min(...rates) / 20) * 10);
}
