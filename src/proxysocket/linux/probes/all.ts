import {
  addressProbe,
  epollProbe,
  errnoProbe,
  functionsProbe,
  platformProbe,
  transferProbe,
} from './basics.ts';
import { datagramProbe, relayProbe } from './carries.ts';
import type { Probe } from './probe.ts';

/** What has to be true before a worker serves clients, from the ground up. */
export const PROBES: readonly Probe[] = [
  platformProbe(),
  functionsProbe,
  errnoProbe,
  epollProbe,
  addressProbe,
  transferProbe(10_000),
  relayProbe,
  datagramProbe,
];
