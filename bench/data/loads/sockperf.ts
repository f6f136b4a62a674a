import { PORTS } from '../ports.ts';
import { runTool, type DataLoad, type Latency, type LoadRun, type Sample } from './load.ts';
import { ownEcho } from './own.ts';

export const SOCKPERF = { command: 'sockperf', package: 'sockperf' };
const BYTES = 64;

/** Runs sockperf for its time. Its times are round trips here. */
export async function sockperf(
  how: LoadRun,
  mode: 'ping-pong' | 'under-load',
  flags: readonly string[] = [],
): Promise<Sample> {
  const { output, cpu } = await runTool(how, [
    'sockperf',
    mode,
    '--full-rtt',
    '-i',
    how.address,
    '-p',
    String(PORTS.sockperf),
    '-t',
    String(how.seconds),
    '--msg-size',
    String(BYTES),
    ...flags,
  ]);
  return { ...readSockperf(output), cpu };
}

/** Reads its report. Throws when no answer came. */
export function readSockperf(output: string): Omit<Sample, 'cpu'> {
  // oxlint-disable-next-line no-control-regex -- it colours its report, even in a pipe
  const text = output.replaceAll(/\u001B\[[\d;]*m/g, '');
  const totals = /RunTime=([\d.]+) sec;.*SentMessages=(\d+); ReceivedMessages=(\d+)/.exec(text);
  const [seconds = 0, sent = 0, received = 0] = (totals ?? []).slice(1).map(Number);
  if (received === 0) throw new Error(`sockperf: no answer came: ${text.trim().slice(-300)}`);
  const at = (percentile: string): number =>
    Number(new RegExp(`percentile ${percentile} +=\\s+([\\d.]+)`).exec(text)?.[1] ?? Number.NaN);
  const latency: Latency = {
    p50: at('50.000'),
    p90: at('90.000'),
    p99: at('99.000'),
    p999: at('99.900'),
  };
  return { total: received, rate: received / seconds, latency, lost: 1 - received / sent };
}

export const PING_PONG_LOAD: DataLoad = {
  word: 'udp-1',
  title: 'UDP round trips, 1 client',
  protocol: 'UDP',
  tool: SOCKPERF,
  rate: { name: 'k/s', factor: 1e-3 },
  cpu: { name: 'µs/round trip', factor: 1e6 },
  run: (how) => sockperf(how, 'ping-pong'),
  without: (how) => ownEcho(how, 1),
};
