/** `npm run bench -- scaling`: the node engine, and the linux engine with one and several workers. */
import { inNetwork, installed, openPeers } from '../data/open.ts';
import { oursWith } from '../data/peers/ours.ts';
import { missingLines } from '../data/report/tables.ts';
import type { DataLoadResult } from '../data/result.ts';
import { runRounds } from '../data/rounds.ts';
import { report } from '../report/page.ts';
import { withSpread } from '../report/stats.ts';
import type { Rows } from '../report/table.ts';
import {
  count,
  engineNamed,
  ENGINES,
  readFlags,
  type EngineName,
  type Output,
  type Print,
} from '../support/command.ts';
import { CLIENTS, scalingLoads } from './loads.ts';

export const SCALING_USAGE = `npm run bench -- scaling [flags]   measures the linux engine with several workers; needs root, ip, nft and wrk

  --workers LIST     numbers of workers (1,2,4)
  --engines LIST     node, linux (both)
  --rounds N         rounds, of which the medians count (3)
  --seconds N        whole seconds of each measurement (2)
  --json FILE        where the figures go (bench/results/scaling.json)
  --write-docs       writes docs/benchmarks/scaling.json and the tables of docs/benchmarks.md`;

interface ScalingPlan extends Output {
  readonly workers: readonly number[];
  readonly engines: readonly EngineName[];
  readonly rounds: number;
  readonly seconds: number;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readScalingArgs(args: readonly string[]): ScalingPlan {
  const { values, output } = readFlags('scaling', args, {
    workers: '1,2,4',
    engines: ENGINES.join(','),
    rounds: '3',
    seconds: '2',
  });
  return {
    workers: values.workers.split(',').map((each) => count('workers', each, 1, 64)),
    engines: values.engines.split(',').map(engineNamed),
    rounds: count('rounds', values.rounds, 1, 100),
    seconds: count('seconds', values.seconds, 1, 600),
    ...output,
  };
}

/** Measures, prints, and writes the files. Rejects when namespaces cannot be made here. */
export async function runScaling(
  plan: ScalingPlan,
  print: Print,
  onProgress: Print,
): Promise<void> {
  const { rounds, seconds } = plan;
  const kinds = plan.engines.flatMap((engine) =>
    // The node engine has none but the main thread.
    (engine === 'linux' ? plan.workers : [1]).map((workers) => oursWith(workers, engine)),
  );
  const found = await inNetwork('reno', onProgress, async ({ network, busyBefore, opened }) => {
    network.addClients(CLIENTS);
    const missing = await openPeers(network, kinds, opened, onProgress);
    const loads = installed(scalingLoads(network), missing, []);
    const client = (...words: readonly string[]): string[] => network.client(...words);
    const run = await runRounds({ client, peers: opened, loads, rounds, seconds, onProgress });
    return {
      peers: opened.map(({ kind: { word, title } }) => ({ word, title })),
      loads: run.results,
      fixedRate: [],
      missing: [...missing, ...run.missing],
      notes: [],
      busyBefore,
    };
  });
  const about = {
    rounds,
    seconds,
    'client addresses': CLIENTS,
    'busy before': `${(100 * found.busyBefore).toFixed(0)} %`,
  };
  const tables = { Traffic: trafficRows(found) };
  report('scaling', plan, { about, tables, notes: missingLines(found) }, found, print);
}

/** Rate and CPU of every load, with a column for each engine and number of workers. */
function trafficRows(found: {
  readonly loads: readonly DataLoadResult[];
  readonly peers: readonly { readonly word: string; readonly title: string }[];
}): Rows {
  const { loads, peers } = found;
  const cells = (load: DataLoadResult, pick: 'rate' | 'own' | 'machine'): string[] =>
    peers.map(({ word }) => withSpread(load.results[word]?.[pick]) || '-');
  return [
    ['', 'figure', ...peers.map(({ title }) => title)],
    ...loads.flatMap((load) => [
      [load.title, load.rateUnit, ...cells(load, 'rate')],
      ['', `CPU of the proxy, ${load.cpuUnit}`, ...cells(load, 'own')],
      ['', `CPU of the machine, ${load.cpuUnit}`, ...cells(load, 'machine')],
    ]),
  ];
}
