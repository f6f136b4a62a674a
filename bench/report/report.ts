import type { Machine } from './machine.ts';
import type { Summary } from './stats.ts';

/** What one peer reached under one load, over the rounds. */
export interface PeerResult {
  readonly rate: Summary | undefined;
  /** CPU of the proxy's process; undefined for `direct`, and where there is no /proc. */
  readonly cpu: Summary | undefined;
  /** Microseconds. */
  readonly p50: Summary | undefined;
  readonly p99: Summary | undefined;
  /** Answers that did not come, over all rounds. */
  readonly lost: number;
}

export interface LoadReport {
  readonly title: string;
  readonly rateUnit: string;
  readonly cpuUnit: string;
  /** By peer. */
  readonly results: Readonly<Record<string, PeerResult>>;
}

/** The idle proxy. */
export interface IdleReport {
  readonly servicePorts: number;
  /** Bytes. */
  readonly resident: number;
  readonly anonymous: number;
  /** From its start until it said that it is ready. */
  readonly readyMs: number;
}

/** Everything that `npm run bench` measures; the form of `--json`. */
export interface Report {
  readonly date: string;
  readonly machine: Machine;
  readonly rounds: number;
  readonly seconds: number;
  /** In the order of the columns. */
  readonly peers: readonly string[];
  readonly loads: readonly LoadReport[];
  readonly idle: readonly IdleReport[];
}
