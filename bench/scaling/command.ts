/** `npm run bench -- scaling`: the node engine, and the linux engine with one and several workers. */
import { parseArgs } from 'node:util';
import { checkMachine } from '../data/command.ts';
import { DataNetwork } from '../data/network.ts';
import { openPeers, type OpenPeer } from '../data/open.ts';
import { oursWith } from '../data/peers/ours.ts';
import { runRounds } from '../data/rounds.ts';
import { startServers } from '../data/servers.ts';
import { busyShare } from '../data/usage.ts';
import { describeMachine, machine } from '../report/machine.ts';
import { publishResults } from '../report/page.ts';
import { asText } from '../report/table.ts';
import {
  commonFlags,
  count,
  engineNamed,
  ENGINES,
  today,
  writeJson,
  type EngineName,
} from '../support/command.ts';
import { isInstalled } from '../support/tools.ts';
import { CLIENTS, scalingLoads } from './loads.ts';
import { scalingResults, trafficRows, type ScalingReport } from './report.ts';

export const SCALING_USAGE = `npm run bench -- scaling [flags]   measures the linux engine with several workers; needs root, ip, nft and wrk

  --workers LIST     numbers of workers (1,2,4)
  --engines LIST     node, linux (both)
  --rounds N         rounds, of which the medians count (3)
  --seconds N        whole seconds of each measurement (2)
  --json FILE        where the figures go (bench/results/scaling.json)
  --write-docs       writes docs/benchmarks/scaling.json and the tables of docs/benchmarks.md`;

export interface ScalingPlan {
  readonly workers: readonly number[];
  readonly engines: readonly EngineName[];
  readonly rounds: number;
  readonly seconds: number;
  readonly json: string;
  readonly writeDocs: boolean;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readScalingArgs(args: readonly string[]): ScalingPlan {
  const { values } = parseArgs({
    args: [...args],
    options: {
      workers: { type: 'string', default: '1,2,4' },
      engines: { type: 'string', default: ENGINES.join(',') },
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '2' },
      ...commonFlags('scaling'),
    },
  });
  return {
    workers: values.workers.split(',').map((each) => count('workers', each, 1, 64)),
    engines: values.engines.split(',').map(engineNamed),
    rounds: count('rounds', values.rounds, 1, 100),
    seconds: count('seconds', values.seconds, 1, 600),
    json: values.json,
    writeDocs: values['write-docs'],
  };
}

/** Measures, prints, and writes the files. Rejects when namespaces cannot be made here. */
export async function runScaling(
  plan: ScalingPlan,
  print: (text: string) => void,
  progress: (text: string) => void,
): Promise<void> {
  checkMachine();
  process.setMaxListeners(200);
  const report = await measureScaling(plan, progress);
  progress('');
  print(`${describeMachine(report.machine)}\n\n${asText(trafficRows(report), 2)}`);
  for (const { peer, load, why } of report.missing)
    print(`not measured: ${peer} ${load ?? ''}: ${why}`);
  writeJson(plan.json, report);
  print(`all figures: ${plan.json}`);
  if (plan.writeDocs) publishResults('scaling', scalingResults(report));
}

async function measureScaling(
  plan: ScalingPlan,
  onProgress: (text: string) => void,
): Promise<ScalingReport> {
  const { rounds, seconds } = plan;
  const busyBefore = await busyShare();
  const kinds = plan.engines.flatMap((each) =>
    workersOf(plan, each).map((workers) => oursWith(workers, each)),
  );
  const network = new DataNetwork('reno');
  network.addClients(CLIENTS);
  const servers = startServers(network);
  const opened: OpenPeer[] = [];
  try {
    const { open, missing } = await openPeers(network, kinds, onProgress);
    opened.push(...open);
    const loads = scalingLoads(network).filter(({ word, tool }) => {
      if (tool === undefined || isInstalled(tool.command)) return true;
      missing.push({ load: word, why: `not installed: ${tool.command} (package ${tool.package})` });
      return false;
    });
    const found = await runRounds({
      client: (...words) => network.client(...words),
      peers: open,
      loads,
      rounds,
      seconds,
      onProgress,
    });
    return {
      date: today(),
      machine: machine(),
      rounds,
      seconds,
      peers: open.map(({ kind: { word, title } }) => ({ word, title })),
      loads: found.results,
      missing: [...missing, ...found.missing],
      busyBefore,
    };
  } finally {
    onProgress('cleaning up');
    for (const { peer } of opened.toReversed()) await peer.close();
    await servers.close();
    network.remove();
  }
}

/** The node engine has none but the main thread. */
function workersOf({ workers }: ScalingPlan, engine: EngineName): readonly number[] {
  return engine === 'linux' ? workers : [1];
}
