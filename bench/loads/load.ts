/** What a load is asked to do, and what it answers. */
import type { Target, TargetName } from '../peers/targets.ts';

export interface LoadSettings {
  readonly target: Target;
  /** How long to measure. Seconds. */
  readonly seconds: number;
}

export interface LoadResult {
  /** Everything that was done, with the start and the end: what CPU is divided by. */
  readonly total: number;
  /** What was done a second, from the time when the load was in full swing. */
  readonly rate: number;
  /** Microseconds, for loads that wait for answers: median and 99th percentile. */
  readonly latency?: { readonly p50: number; readonly p99: number };
  /** Datagrams or answers that did not come. */
  readonly lost?: number;
}

/** One row of the table. */
export interface LoadDescription {
  /** Name of the script in this folder, without `.ts`. */
  readonly script: string;
  readonly title: string;
  readonly target: TargetName;
  /** What `rate` and `total` count, and the factor from them to what is printed. */
  readonly rate: { readonly unit: string; readonly factor: number };
  /** What CPU is divided by, and the factor from `total` to it. */
  readonly cpu: { readonly unit: string; readonly factor: number };
}

const GIGA = 1e9;

export const LOADS: readonly LoadDescription[] = [
  {
    script: 'bulk-down',
    title: 'bulk TCP, endpoint to client, 1 stream',
    target: 'source',
    rate: { unit: 'GB/s', factor: 1 / GIGA },
    cpu: { unit: 's/GB', factor: 1 / GIGA },
  },
  {
    script: 'bulk-up',
    title: 'bulk TCP, client to endpoint, 1 stream',
    target: 'sink',
    rate: { unit: 'GB/s', factor: 1 / GIGA },
    cpu: { unit: 's/GB', factor: 1 / GIGA },
  },
  {
    script: 'requests',
    title: 'small requests, 64 connections kept',
    target: 'requests',
    rate: { unit: 'k/s', factor: 1 / 1000 },
    cpu: { unit: 's/100k', factor: 1 / 100_000 },
  },
  {
    script: 'connections',
    title: 'a connection for each request, 16 at once',
    target: 'connections',
    rate: { unit: 'k/s', factor: 1 / 1000 },
    cpu: { unit: 's/100k', factor: 1 / 100_000 },
  },
  {
    script: 'udp',
    title: 'UDP round trips, 16 clients with 4 in flight',
    target: 'echo',
    rate: { unit: 'k/s', factor: 1 / 1000 },
    cpu: { unit: 's/100k', factor: 1 / 100_000 },
  },
];
