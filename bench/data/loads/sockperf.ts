import { PORTS } from '../ports.ts';
import {
  runTool,
  unitsOf,
  type DataLoad,
  type Latency,
  type LoadRun,
  type Sample,
} from './load.ts';
import { runOwn } from './own.ts';

const BYTES = 64;

/** Runs sockperf for its time. Its times are round trips here. */
export async function sockperf(
  how: LoadRun,
  mode: 'ping-pong' | 'under-load',
  flags: readonly string[] = [],
): Promise<Sample> {
  const where = `-i ${how.address} -p ${PORTS.sockperf} -t ${how.seconds} --msg-size ${BYTES}`;
  const words = ['sockperf', mode, '--full-rtt', ...where.split(' '), ...flags];
  const { output, cpu } = await runTool(how, words);
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
  tool: 'sockperf',
  ...unitsOf('round trip'),
  run: (how) => sockperf(how, 'ping-pong'),
  without: (how) => runOwn(how, { kind: 'echo', clients: 1 }),
};
