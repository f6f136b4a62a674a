import type { DataLoadResult } from '../result.ts';
import { BULK_LOADS, ONE_WAY_LOAD } from './iperf3.ts';
import { unitsOf, type DataLoad } from './load.ts';
import { runOwn } from './own.ts';
import { PING_PONG_LOAD, sockperf } from './sockperf.ts';
import { WRK_LOADS } from './wrk.ts';

/** UDP round trips with the clients of this project: sockperf has one flow. */
function echo(clients: number): DataLoad {
  return {
    word: `udp-${clients}`,
    title: `UDP round trips, ${clients.toLocaleString('en')} clients`,
    protocol: 'UDP',
    ...unitsOf('round trip'),
    run: (how) => runOwn(how, { kind: 'echo', clients }),
  };
}

/** In the order of the page. */
export const DATA_LOADS: readonly DataLoad[] = [
  ...BULK_LOADS,
  ...WRK_LOADS,
  PING_PONG_LOAD,
  echo(64),
  echo(1000),
  ONE_WAY_LOAD,
];

const CONNECTIONS = 64;

/**
 * Loads at a fixed rate, for latency: every peer is asked for half of what the slowest one can do under the load
 * `after`. At its maximum a proxy only shows how long its queue is.
 */
export const PACED: readonly {
  readonly after: string;
  readonly at: (perSecond: number) => DataLoad;
}[] = [
  {
    after: `requests-${CONNECTIONS}`,
    at: (perSecond) => ({
      word: 'requests-paced',
      title: `small requests, ${CONNECTIONS} connections kept, ${perSecond.toLocaleString('en')} a second`,
      protocol: 'TCP',
      ...unitsOf('request'),
      run: (how) => runOwn(how, { kind: 'requests', clients: CONNECTIONS, perSecond }),
    }),
  },
  {
    after: PING_PONG_LOAD.word,
    at: (perSecond) => ({
      word: 'udp-paced',
      title: `UDP round trips, 1 client, ${perSecond.toLocaleString('en')} a second`,
      protocol: 'UDP',
      tool: 'sockperf',
      ...unitsOf('round trip'),
      run: (how) => sockperf(how, 'under-load', ['--mps', String(perSecond), '--reply-every', '1']),
    }),
  },
];

/** Half of the slowest peer's maximum, in whole tens a second. Undefined when no peer was measured. */
export function halfOfSlowest({ results }: DataLoadResult): number | undefined {
  const rates = Object.values(results).map(({ rate }) => rate.median * 1000);
  return rates.length === 0 ? undefined : Math.max(10, Math.floor(Math.min(...rates) / 20) * 10);
}
