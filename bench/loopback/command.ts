/** `npm run bench`: traffic on loopback, beside no proxy and a naive one, and what an idle proxy takes. */
import { startProxy } from '../../examples/support/proxy-process.ts';
import type { OpenPeer } from '../data/open.ts';
import { allTables, missingLines } from '../data/report/tables.ts';
import { runRounds } from '../data/rounds.ts';
import { report } from '../report/page.ts';
import type { Rows } from '../report/table.ts';
import { readFlags, type Output, type Print } from '../support/command.ts';
import { memory, settled } from '../support/process-usage.ts';
import { unusedServices } from '../support/services.ts';
import { LOOPBACK_LOADS } from './loads.ts';
import { loopbackPeers, loopbackPorts } from './peers.ts';

const WORDS = LOOPBACK_LOADS.map(({ word }) => word).join(', ');

export const LOOPBACK_USAGE = `npm run bench -- [flags]           measures this proxy beside no proxy and a naive one

  --rounds N      rounds of measurements, of which the median counts (3)
  --seconds N     seconds of each measurement (0.8)
  --only WORD     only the loads whose name has it: ${WORDS}
  --json FILE     where the figures go (bench/results/loopback.json)
  --write-docs    writes docs/benchmarks/loopback.json and the tables of docs/benchmarks.md`;

interface LoopbackPlan extends Output {
  readonly rounds: number;
  readonly seconds: number;
  readonly only: string;
  /** Service ports of the idle proxies that are measured. */
  readonly idleSizes: readonly number[];
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
  const { values, output } = readFlags('loopback', args, {
    rounds: '3',
    seconds: '0.8',
    only: '',
  });
  if (!LOOPBACK_LOADS.some(({ word }) => word.includes(values.only))) {
    throw new TypeError(`--only ${values.only}: expected a part of one of ${WORDS}`);
  }
  return {
    rounds: Math.ceil(positive('rounds', values.rounds)),
    seconds: positive('seconds', values.seconds),
    only: values.only,
    idleSizes: [2, 1000],
    ...output,
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
  print: Print,
  progress: Print,
): Promise<void> {
  const { rounds, seconds } = plan;
  const traffic = await measureTraffic(plan, progress);
  const idle: IdleProxy[] = [];
  for (const size of plan.idleSizes) {
    progress(`idle with ${size} service ports`);
    idle.push(await measureIdle(size));
  }
  const tables = { ...allTables(traffic), 'Idle memory': idleRows(idle) };
  const findings = { about: { rounds, seconds }, tables, notes: missingLines(traffic) };
  report('loopback', plan, findings, { ...traffic, idle }, print);
}

async function measureTraffic({ only, rounds, seconds }: LoopbackPlan, onProgress: Print) {
  const ports = await loopbackPorts();
  const peers: OpenPeer[] = [];
  try {
    for (const { kind, open } of loopbackPeers(ports)) peers.push({ kind, peer: await open() });
    const loads = LOOPBACK_LOADS.filter(({ word }) => word.includes(only));
    const client = (...words: readonly string[]): string[] => [...words];
    const found = await runRounds({ client, ports, peers, loads, rounds, seconds, onProgress });
    return {
      peers: peers.map(({ kind: { word, title } }) => ({ word, title })),
      loads: found.results,
      fixedRate: [],
      idleConnection: {},
      missing: found.missing,
      notes: [],
    };
  } finally {
    for (const { peer } of peers.toReversed()) await peer.close();
  }
}

/** Starts a proxy with so many service ports. */
async function measureIdle(servicePorts: number): Promise<IdleProxy> {
  const start = performance.now();
  const proxy = await startProxy({ services: unusedServices(servicePorts) });
  const readyMs = performance.now() - start;
  try {
    await settled(() => memory(proxy.pid)?.resident ?? 0);
    const { resident = 0, anonymous = 0 } = memory(proxy.pid) ?? {};
    return { servicePorts, resident, anonymous, readyMs };
  } finally {
    await proxy.stop();
  }
}

function idleRows(idle: readonly IdleProxy[]): Rows {
  const mb = (bytes: number): string => (bytes / 1e6).toFixed(0);
  return [
    ['idle proxy with', 'resident MB', 'its own MB', 'ready after ms'],
    ...idle.map(({ servicePorts, resident, anonymous, readyMs }) => [
      `${servicePorts} service ports`,
      mb(resident),
      mb(anonymous),
      readyMs.toFixed(0),
    ]),
  ];
}
