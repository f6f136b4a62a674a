/** Every load with every peer, several times: rounds are interleaved, so that drift meets all peers alike. */
import { messageOf } from '../../src/errors.ts';
import { summarize } from '../report/stats.ts';
import type { DataLoad, Latency, LoadRun, Sample } from './loads/load.ts';
import { diagnosis, type OpenPeer } from './open.ts';
import { cpuOfRun } from '../support/process-usage.ts';
import type { DataLoadResult, DataResult, Missing } from './result.ts';

/** Failures of one peer under one load after which it is not tried any more. */
const ENOUGH = 2;

/** `seconds`: of each measurement. */
interface RoundsPlan extends Pick<LoadRun, 'client' | 'ports' | 'seconds'> {
  readonly peers: readonly OpenPeer[];
  readonly loads: readonly DataLoad[];
  readonly rounds: number;
  readonly onProgress: (text: string) => void;
}

/**
 * Another peer begins each round. A measurement that fails is left out of the medians, and reported with its
 * cause; what has failed twice is not retried, since most failures take long.
 */
export async function runRounds(plan: RoundsPlan): Promise<{
  readonly results: DataLoadResult[];
  readonly missing: Missing[];
}> {
  const { peers, loads, rounds, onProgress } = plan;
  const samples = new Map<string, RoundSample[]>();
  const failures = new Map<string, string[]>();
  for (let round = 0; round < rounds; round += 1) {
    for (const load of loads) {
      for (let turn = 0; turn < peers.length; turn += 1) {
        const open = peers[(turn + round) % peers.length];
        if (open === undefined || (load.protocol === 'UDP' && !open.kind.udp)) continue;
        const key = `${load.word} ${open.kind.word}`;
        const failed = failures.get(key) ?? [];
        if (failed.length === ENOUGH) continue;
        onProgress(`round ${round + 1} of ${rounds}: ${load.title}, ${open.kind.title}`);
        try {
          const sample = await measure(plan, load, open);
          samples.set(key, [...(samples.get(key) ?? []), sample]);
        } catch (error) {
          failures.set(key, [...failed, diagnosis(open.peer) ?? messageOf(error)]);
        }
      }
    }
  }
  const missing: Missing[] = [];
  for (const load of loads) {
    for (const { kind } of peers) {
      const why = failures.get(`${load.word} ${kind.word}`)?.at(-1);
      if (why !== undefined) missing.push({ peer: kind.word, load: load.word, why });
    }
  }
  const of = (load: DataLoad, word: string): RoundSample[] =>
    samples.get(`${load.word} ${word}`) ?? [];
  return {
    missing,
    results: loads.map((load) => ({
      word: load.word,
      title: load.title,
      rateUnit: load.rate.name,
      cpuUnit: load.cpu.name,
      results: Object.fromEntries(
        peers.flatMap(({ kind }) => {
          const result = combine(load, of(load, kind.word), isProcess(kind.word));
          return result === undefined ? [] : [[kind.word, result]];
        }),
      ),
    })),
  };
}

function isProcess(word: string): boolean {
  return word !== 'direct' && word !== 'dnat';
}

async function measure(
  { client, ports, seconds }: RoundsPlan,
  load: DataLoad,
  open: OpenPeer,
): Promise<RoundSample> {
  open.peer.check();
  const before = cpuOfRun();
  const sample = await load.run({
    address: open.peer.address,
    seconds,
    pids: open.peer.pids(),
    client,
    ...(ports && { ports }),
  });
  return { ...sample, run: cpuOfRun() - before };
}

/** With the CPU of all programs of the run, clients and servers included. Seconds. */
type RoundSample = Sample & { readonly run: number };

/** Undefined when there is no sample. */
export function combine(
  { rate, cpu }: Pick<DataLoad, 'rate' | 'cpu'>,
  samples: readonly RoundSample[],
  hasProcess: boolean,
): DataResult | undefined {
  const rates = summarize(samples.map((sample) => sample.rate * rate.factor));
  const machine = summarize(
    samples.map((sample) => (sample.cpu.machine / sample.total) * cpu.factor),
  );
  const run = summarize(samples.map((sample) => (sample.run / sample.total) * cpu.factor));
  if (rates === undefined || machine === undefined || run === undefined) return undefined;
  const perUnit = samples.map((sample) => (sample.cpu.processes / sample.total) * cpu.factor);
  return {
    rate: rates,
    own: hasProcess ? summarize(perUnit) : undefined,
    machine,
    run,
    latency: medianLatency(samples.flatMap(({ latency }) => latency ?? [])),
    lost: summarize(samples.map(({ lost = 0 }) => lost))?.median ?? 0,
  };
}

/** The median of the rounds, of each percentile by itself. */
function medianLatency(latencies: readonly Latency[]): Latency | undefined {
  if (latencies.length === 0) return undefined;
  const middle = (pick: keyof Latency): number =>
    summarize(latencies.map((latency) => latency[pick]))?.median ?? 0;
  return { p50: middle('p50'), p90: middle('p90'), p99: middle('p99'), p999: middle('p999') };
}
