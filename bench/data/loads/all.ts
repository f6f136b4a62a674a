import { BULK_LOADS, ONE_WAY_LOAD } from './iperf3.ts';
import { ECHO_LOADS } from './echo.ts';
import type { DataLoad } from './load.ts';
import { PING_PONG_LOAD } from './sockperf.ts';
import { WRK_LOADS } from './wrk.ts';

/** In the order of the page. */
export const DATA_LOADS: readonly DataLoad[] = [
  ...BULK_LOADS,
  ...WRK_LOADS,
  PING_PONG_LOAD,
  ...ECHO_LOADS,
  ONE_WAY_LOAD,
];
