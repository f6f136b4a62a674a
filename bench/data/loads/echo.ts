import type { DataLoad } from './load.ts';
import { ownEcho } from './own.ts';

/** UDP round trips with the clients of this project: sockperf has one flow. */
function echo(clients: number): DataLoad {
  return {
    word: `udp-${clients}`,
    title: `UDP round trips, ${clients.toLocaleString('en')} clients`,
    protocol: 'UDP',
    tool: undefined,
    rate: { name: 'k/s', factor: 1e-3 },
    cpu: { name: 'µs/round trip', factor: 1e6 },
    run: (how) => ownEcho(how, clients),
  };
}

export const ECHO_LOADS: readonly DataLoad[] = [echo(64), echo(1000)];
