/** `npm run bench`: traffic on loopback, beside no proxy and a naive one, and what an idle proxy takes. */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startProxy } from '../../examples/support/proxy-process.ts';
import { writeState } from '../../examples/support/state-file.ts';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { allTables, missingLines } from '../data/report/tables.ts';
import type { DataLoadResult, Missing } from '../data/result.ts';
import type { OpenPeer } from '../data/open.ts';
import { runRounds } from '../data/rounds.ts';
import { describeMachine, machine, type Machine } from '../report/machine.ts';
import { publishResults } from '../report/page.ts';
import { asText, type Rows } from '../report/table.ts';
import { today, writeJson } from '../support/command.ts';
import { memory } from '../support/process-usage.ts';
import { settled } from '../support/settled.ts';
import { LOOPBACK_LOADS, loopbackLoads } from './loads.ts';
import { loopbackPeers, loopbackPorts } from './peers.ts';

export const LOOPBACK_USAGE = `npm run bench -- [flags]           measures this proxy beside no proxy and a naive one

  --rounds N      rounds of measurements, of which the median counts (3)
  --seconds N     seconds of each measurement (0.8)
  --only WORD     only the loads whose name has it: ${LOOPBACK_LOADS.join(', ')}
  --json FILE     writes the figures to a file as well
  --write-docs    writes docs/benchmarks/loopback.json and the tables of docs/benchmarks.md`;

export interface LoopbackPlan {
  readonly rounds: number;
  readonly seconds: number;
  readonly only: string;
  /** Service ports of the idle proxies that are measured. */
  readonly idleSizes: readonly number[];
  readonly json: string | undefined;
  readonly writeDocs: boolean;
}

/** What `--json` has. */
interface LoopbackReport {
  readonly date: string;
  readonly machine: Machine;
  readonly rounds: number;
  readonly seconds: number;
  readonly peers: readonly { readonly word: string; readonly title: string }[];
  readonly loads: readonly DataLoadResult[];
  readonly missing: readonly Missing[];
  readonly idle: readonly IdleProxy[];
}

interface IdleProxy {
  readonly servicePorts: number;
  /** Bytes. */
  readonly resident: number;
  readonly anonymous: number;
  /** From its start until it said that it is ready. */
  readonly readyMs: number;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readLoopbackArgs(args: readonly string[]): LoopbackPlan {
  const { values } = parseArgs({
    args: [...args],
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '0.8' },
      only: { type: 'string', default: '' },
      json: { type: 'string' },
      'write-docs': { type: 'boolean', default: false },
    },
  });
  if (!LOOPBACK_LOADS.some((word) => word.includes(values.only))) {
    throw new TypeError(
      `--only ${values.only}: expected a part of one of ${LOOPBACK_LOADS.join(', ')}`,
    );
  }
  return {
    rounds: Math.ceil(positive('rounds', values.rounds)),
    seconds: positive('seconds', values.seconds),
    only: values.only,
    idleSizes: [2, 1000],
    json: values.json,
    writeDocs: values['write-docs'],
  };
}

/** A number above 0, or a usage error. */
export function positive(flag: string, text: string): number {
  const value = Number(text);
  if (value > 0 && Number.isFinite(value)) return value;
  throw new TypeError(`--${flag} ${JSON.stringify(text)}: expected a number above 0`);
}

/** Measures, prints, and writes the files. */
export async function runLoopback(
  plan: LoopbackPlan,
  print: (text: string) => void,
  progress: (text: string) => void,
): Promise<void> {
  const traffic = await measureTraffic(plan, progress);
  const idle: IdleProxy[] = [];
  for (const size of plan.idleSizes) {
    progress(`idle with ${size} service ports`);
    idle.push(await measureIdle(size));
  }
  progress('');
  const { rounds, seconds } = plan;
  const common = { date: today(), machine: machine(), rounds, seconds };
  const report: LoopbackReport = { ...common, ...traffic, idle };
  print(describeMachine(report.machine));
  print(`medians of ${rounds} rounds of ${seconds} s; in brackets: lowest to highest`);
  const tables = tablesOf(report);
  for (const [title, rows] of Object.entries(tables)) print(`\n${title}\n\n${asText(rows, 1)}`);
  const notes = missingLines({ ...report, fixedRate: [], notes: [] });
  for (const line of notes) print(line);
  if (plan.json !== undefined) writeJson(plan.json, report);
  if (!plan.writeDocs) return;
  publishResults('loopback', {
    date: report.date,
    machine: describeMachine(report.machine),
    about: { rounds, seconds },
    tables,
    notes,
  });
}

async function measureTraffic(
  { only, rounds, seconds }: LoopbackPlan,
  onProgress: (text: string) => void,
): Promise<Pick<LoopbackReport, 'peers' | 'loads' | 'missing'>> {
  const ports = await loopbackPorts();
  const peers: OpenPeer[] = [];
  try {
    for (const kind of loopbackPeers(ports)) peers.push({ kind, peer: await kind.open() });
    const loads = loopbackLoads(ports).filter(({ word }) => word.includes(only));
    const client = (...words: readonly string[]): string[] => [...words];
    const found = await runRounds({ client, peers, loads, rounds, seconds, onProgress });
    const named = peers.map(({ kind: { word, title } }) => ({ word, title }));
    return { peers: named, loads: found.results, missing: found.missing };
  } finally {
    for (const { peer } of peers.toReversed()) await peer.close();
  }
}

/** Starts a proxy with so many service ports, at 127.79.0.0/16 with two endpoints each. */
async function measureIdle(servicePorts: number): Promise<IdleProxy> {
  const folder = tempFolder('idle');
  try {
    const input = join(folder.path, 'state.yaml');
    writeState(
      input,
      Array.from({ length: servicePorts }, (_, index) => ({
        namespace: 'idle',
        name: `service-${index}`,
        clusterIP: `127.79.${Math.floor(index / 250)}.${(index % 250) + 1}`,
        ports: [{ name: 'http', protocol: 'TCP', port: 8080, targetPort: 8080 }],
        endpoints: [1, 2].map((n) => ({ name: `pod-${n}`, address: `127.78.2.${n}` })),
      })),
    );
    const start = performance.now();
    const proxy = await startProxy({ input });
    const readyMs = performance.now() - start;
    try {
      await settled(() => memory(proxy.pid)?.resident ?? 0);
      const { resident = 0, anonymous = 0 } = memory(proxy.pid) ?? {};
      return { servicePorts, resident, anonymous, readyMs };
    } finally {
      await proxy.stop();
    }
  } finally {
    folder.remove();
  }
}

function tablesOf({ peers, loads, idle }: LoopbackReport): Readonly<Record<string, Rows>> {
  const traffic = allTables({ peers, loads, fixedRate: [], idleConnection: {} });
  const mb = (bytes: number): string => (bytes / 1e6).toFixed(0);
  return {
    ...Object.fromEntries(traffic.map(({ title, rows }) => [title, rows])),
    'Idle memory': [
      ['idle proxy with', 'resident MB', 'its own MB', 'ready after ms'],
      ...idle.map(({ servicePorts, resident, anonymous, readyMs }) => [
        `${servicePorts} service ports`,
        mb(resident),
        mb(anonymous),
        readyMs.toFixed(0),
      ]),
    ],
  };
}
