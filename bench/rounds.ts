/** Runs loads against peers in interleaved rounds and puts the results together. */
import { join } from 'node:path';
import type { LoadDescription, LoadResult, LoadSettings } from './loads/load.ts';
import type { Peer } from './peers/peer.ts';
import type { LoadReport, PeerResult } from './report/report.ts';
import { summarize } from './report/stats.ts';
import { cpuSeconds } from './support/process-usage.ts';
import { run } from './support/worker.ts';

interface Sample {
  readonly load: LoadDescription;
  readonly peer: string;
  readonly result: LoadResult;
  /** Seconds of CPU that the proxy used meanwhile. */
  readonly cpu: number | undefined;
}

export interface RoundsOptions {
  readonly loads: readonly LoadDescription[];
  readonly peers: readonly Peer[];
  readonly rounds: number;
  readonly seconds: number;
  /** Called before each measurement. */
  readonly onProgress: (text: string) => void;
}

async function measure(load: LoadDescription, peer: Peer, seconds: number): Promise<Sample> {
  const script = join(import.meta.dirname, 'loads', `${load.script}.ts`);
  const settings: LoadSettings = { target: peer.targets[load.target], seconds };
  const cpu = (): number | undefined => (peer.pid === undefined ? undefined : cpuSeconds(peer.pid));
  const before = cpu();
  const result = await run<LoadResult>(script, settings);
  const after = cpu();
  const used = before === undefined || after === undefined ? undefined : after - before;
  return { load, peer: peer.name, result, cpu: used };
}

/** Measures every load with every peer once a round; another peer begins each round. */
export async function runRounds(options: RoundsOptions): Promise<LoadReport[]> {
  const { loads, peers, rounds, seconds } = options;
  const samples: Sample[] = [];
  for (let round = 0; round < rounds; round += 1) {
    for (const load of loads) {
      for (let turn = 0; turn < peers.length; turn += 1) {
        const peer = peers[(turn + round) % peers.length];
        if (peer === undefined) continue;
        options.onProgress(`round ${round + 1} of ${rounds}: ${load.title}, ${peer.name}`);
        samples.push(await measure(load, peer, seconds));
      }
    }
  }
  return loads.map((load) => report(load, peers, samples));
}

function report(
  load: LoadDescription,
  peers: readonly Peer[],
  samples: readonly Sample[],
): LoadReport {
  const results = peers.map(({ name }): [string, PeerResult] => {
    const own = samples.filter((sample) => sample.load === load && sample.peer === name);
    return [name, combine(load, own)];
  });
  return {
    title: load.title,
    rateUnit: load.rate.unit,
    cpuUnit: load.cpu.unit,
    results: Object.fromEntries(results),
  };
}

function combine(load: LoadDescription, samples: readonly Sample[]): PeerResult {
  const latencies = samples.flatMap(({ result }) => result.latency ?? []);
  return {
    rate: summarize(samples.map(({ result }) => result.rate * load.rate.factor)),
    cpu: summarize(
      samples.flatMap(({ cpu, result }) =>
        cpu === undefined || result.total === 0 ? [] : [cpu / (result.total * load.cpu.factor)],
      ),
    ),
    p50: summarize(latencies.map(({ p50 }) => p50)),
    p99: summarize(latencies.map(({ p99 }) => p99)),
    lost: samples.reduce((sum, { result }) => sum + (result.lost ?? 0), 0),
  };
}
