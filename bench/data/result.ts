/** What `npm run bench -- data` finds out; the form of its JSON. */
import type { Summary } from '../report/stats.ts';
import type { Latency } from './loads/load.ts';

/** One peer under one load, over the rounds. */
export interface DataResult {
  readonly rate: Summary;
  /** CPU of the proxy's processes for one unit of work; undefined where there are none. */
  readonly own: Summary | undefined;
  /** CPU of the whole machine for one unit of work. */
  readonly machine: Summary;
  /** The same of all programs of the run: clients, servers, proxies. Whatever else runs is not in it. */
  readonly run: Summary;
  /** Medians of the rounds, of each percentile by itself. */
  readonly latency: Latency | undefined;
  /** Share of what was sent that did not arrive; the median. */
  readonly lost: number;
}

export interface DataLoadResult {
  readonly word: string;
  readonly title: string;
  /** Names of the units that rates and CPU are in. */
  readonly rateUnit: string;
  readonly cpuUnit: string;
  /** By peer; those that failed are missing. */
  readonly results: Readonly<Record<string, DataResult>>;
}

export interface Missing {
  /** Of a peer, or of a load with every peer. */
  readonly peer?: string;
  readonly load?: string;
  readonly why: string;
}

export interface DataReport {
  /** In the order of the columns. */
  readonly peers: readonly { readonly word: string; readonly title: string }[];
  readonly loads: readonly DataLoadResult[];
  /** While so much is asked for that every peer can keep up. */
  readonly fixedRate: readonly DataLoadResult[];
  /** Bytes of the proxy's processes for one idle connection, by peer. */
  readonly idleConnection: Readonly<Record<string, number>>;
  readonly missing: readonly Missing[];
  /** What else the reader has to know of this run. */
  readonly notes: readonly string[];
  /** Share of all cores that something else used before the run began. */
  readonly busyBefore: number;
  /** Whole run. Seconds. */
  readonly took: number;
}
