/**
 * Latency while every peer is asked for the same: half of what the slowest one can do. At its maximum
 * a proxy only shows how long its queue is.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { runTool, type DataLoad, type Latency, type LoadRun, type Sample } from './loads/load.ts';
import { SOCKPERF, sockperf } from './loads/sockperf.ts';
import { PORTS } from './ports.ts';
import type { DataLoadResult } from './result.ts';

const CONNECTIONS = 64;

/** A load at a fixed rate, and the load whose slowest peer says how fast. */
interface Paced {
  /** Load whose maximum is asked for half. */
  readonly after: string;
  readonly at: (perSecond: number) => DataLoad;
}

const H2LOAD = { command: 'h2load', package: 'nghttp2-client' };

function requests(perSecond: number): DataLoad {
  return {
    word: 'requests-paced',
    title: `small requests, ${CONNECTIONS} connections kept, ${perSecond.toLocaleString('en')} a second`,
    protocol: 'TCP',
    tool: H2LOAD,
    rate: { name: 'k/s', factor: 1e-3 },
    cpu: { name: 'µs/request', factor: 1e6 },
    run: (how) => h2load(how, perSecond),
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

/** Half of the slowest peer's maximum, in whole tens a second. Undefined when nobody was measured. */
export function halfOfSlowest({ results }: DataLoadResult): number | undefined {
  const rates = Object.values(results).map(({ rate }) => rate.median * 1000);
  return rates.length === 0 ? undefined : Math.max(10, Math.floor(Math.min(...rates) / 20) * 10);
}

/** h2load sends on each connection by a timer of its own, and notes every request. */
async function h2load(how: LoadRun, perSecond: number): Promise<Sample> {
  const folder = tempFolder('bench-h2load');
  const log = join(folder.path, 'log');
  try {
    const { output, cpu } = await runTool(how, [
      'h2load',
      '--h1',
      '-c',
      String(CONNECTIONS),
      '-t',
      '1',
      '-D',
      String(how.seconds),
      '--rps',
      (perSecond / CONNECTIONS).toFixed(2),
      `--log-file=${log}`,
      `http://${how.address}:${PORTS.http}/`,
    ]);
    return { ...readH2load(output, readFileSync(log, 'utf8')), cpu };
  } finally {
    folder.remove();
  }
}

/**
 * Reads what it prints, for what failed, and its log: start in microseconds, status and microseconds of
 * each request. Throws when none was answered.
 */
export function readH2load(output: string, log: string): Omit<Sample, 'cpu'> {
  const times: number[] = [];
  let [first, last] = [Infinity, 0];
  for (const line of log.split('\n')) {
    const [start = 0, status, time] = line.split('\t').map(Number);
    if (status !== 200 || time === undefined) continue;
    times.push(time);
    first = Math.min(first, start);
    last = Math.max(last, start + time);
  }
  if (times.length === 0) throw new Error(`h2load: no answer: ${output.trim().slice(-300)}`);
  const sorted = Float64Array.from(times).sort();
  const at = (share: number): number => sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
  const latency: Latency = { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) };
  const failed = Number(/(\d+) failed/.exec(output)?.[1] ?? 0);
  return {
    total: times.length,
    rate: times.length / ((last - first) / 1e6),
    latency,
    lost: failed / (times.length + failed),
  };
}
