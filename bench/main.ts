/**
 * `npm run bench`: what this proxy costs, against no proxy and against a naive one.
 *
 *     npm run bench                      a first look, in less than a minute
 *     npm run bench -- integrity         checks that 1 GiB arrives intact, with an endpoint killed
 *
 * Flags: --rounds N, --seconds N (of each measurement), --only WORD (loads whose name holds it),
 * --json FILE, --write-docs; for integrity --mib N.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { idle } from './idle.ts';
import { runIntegrity } from './integrity.ts';
import { LOADS } from './loads/load.ts';
import { direct, ours, pipe, type Peer } from './peers/peer.ts';
import { renderDocs } from './report/docs.ts';
import { describeMachine, machine } from './report/machine.ts';
import type { IdleReport, LoadReport, Report } from './report/report.ts';
import { asText, loadRows, memoryRows } from './report/table.ts';
import { runRounds } from './rounds.ts';

const DOCS = join(import.meta.dirname, '../docs/benchmarks.md');
/** Service ports of the idle proxies that are measured. */
const IDLE_SIZES = [2, 1000];

interface Options {
  readonly rounds: number;
  readonly seconds: number;
  readonly only: string;
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** One line on a terminal that the next one replaces; nothing elsewhere. */
function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001B[K${text}`);
}

async function traffic(options: Options): Promise<{ loads: LoadReport[]; peers: string[] }> {
  const peers: Peer[] = [];
  try {
    const backend = await direct();
    peers.push(backend);
    peers.push(await ours(backend.targets));
    peers.push(await pipe(backend.targets));
    const loads = await runRounds({
      loads: LOADS.filter((load) => load.script.includes(options.only)),
      peers,
      rounds: options.rounds,
      seconds: options.seconds,
      onProgress: progress,
    });
    return { loads, peers: peers.map((peer) => peer.name) };
  } finally {
    for (const peer of peers.toReversed()) await peer.close();
  }
}

async function measure(options: Options): Promise<Report> {
  const { loads, peers } = await traffic(options);
  const idles: IdleReport[] = [];
  for (const size of IDLE_SIZES) {
    progress(`idle with ${size} service ports`);
    const report = await idle(size);
    if (report !== undefined) idles.push(report);
  }
  progress('');
  const date = new Date().toISOString().slice(0, 10);
  return { date, machine: machine(), ...options, peers, loads, idle: idles };
}

function show(report: Report): void {
  print(describeMachine(report.machine));
  print(
    `medians of ${report.rounds} rounds of ${report.seconds} s; in brackets: lowest to highest\n`,
  );
  print(asText(loadRows(report)));
  print(`\n${asText(memoryRows(report), 1)}`);
  for (const load of report.loads) {
    for (const [peer, { lost }] of Object.entries(load.results)) {
      if (lost > 0) print(`\n${load.title}: ${lost} without answer (${peer})`);
    }
  }
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '0.8' },
      only: { type: 'string', default: '' },
      json: { type: 'string' },
      'write-docs': { type: 'boolean', default: false },
      mib: { type: 'string', default: '1024' },
    },
  });
  if (positionals[0] === 'integrity') {
    const ok = await runIntegrity({ mib: Number(values.mib), onLine: print });
    process.exitCode = ok ? 0 : 1;
    return;
  }
  const report = await measure({
    rounds: Number(values.rounds),
    seconds: Number(values.seconds),
    only: values.only,
  });
  show(report);
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(report, null, 2)}\n`);
  if (values['write-docs']) writeFileSync(DOCS, renderDocs(report));
}

await main();
