/**
 * `npm run bench`: what this proxy costs, against no proxy and against a naive one.
 *
 *     npm run bench                      a first look, in less than a minute
 *     npm run bench -- data              what traffic costs, beside other proxies, as root
 *     npm run bench -- scaling           both engines with several workers, as root
 *     npm run bench -- rest              memory and CPU of an idle proxy
 *     npm run bench -- integrity         checks that 1 GiB arrives intact, with an endpoint killed
 *     npm run bench -- portals           how fast portals write rules, as root
 *     npm run bench -- state-file        how long large state files take, and what waits meanwhile
 *     npm run bench -- control           what serving the API costs
 *     npm run bench -- soak              a million events, and a heap that stays flat
 *     npm run bench -- scrape            how long traffic waits while metrics are read
 *     npm run bench -- abuse             everything that peers can do wrong
 *
 * USAGE below has the flags.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ABUSE_USAGE, readAbuseArgs, runAbuse } from './abuse/command.ts';
import { CONTROL_USAGE, readControlArgs, runControl } from './control/command.ts';
import { runData } from './data/command.ts';
import { DATA_USAGE, readDataArgs } from './data/plan.ts';
import { idle } from './idle.ts';
import { runIntegrity } from './integrity.ts';
import { LOADS } from './loads/load.ts';
import { direct, ours, pipe, type Peer } from './peers/peer.ts';
import { loopbackResults } from './report/docs.ts';
import { PORTALS_USAGE, readPortalArgs, runPortals } from './portals/command.ts';
import { describeMachine, machine } from './report/machine.ts';
import { publishResults } from './report/page.ts';
import type { IdleReport, LoadReport, Report } from './report/report.ts';
import { asText, loadRows, memoryRows } from './report/table.ts';
import { readRestArgs, REST_USAGE, runRest } from './rest/command.ts';
import { runRounds } from './rounds.ts';
import { readScalingArgs, runScaling, SCALING_USAGE } from './scaling/command.ts';
import { readSoakArgs, runSoak, SOAK_USAGE } from './soak/command.ts';

// A proxy that keeps what it has compiled takes 30 MiB more while it does.
delete process.env['NODE_COMPILE_CACHE'];

const USAGE = `npm run bench -- [flags]           measures this proxy beside no proxy and a naive one
npm run bench -- data [flags]      measures traffic beside other proxies; see data --help
npm run bench -- scaling [flags]   measures both engines with several workers; see scaling --help
npm run bench -- rest [flags]      measures memory and CPU of an idle proxy; see rest --help
npm run bench -- integrity [flags] checks that a large transfer arrives intact, with an endpoint killed
npm run bench -- portals [flags]   measures how fast portals write rules; see portals --help
npm run bench -- state-file        measures how long large state files take, and what waits meanwhile
npm run bench -- control [flags]   measures what serving kpng's API costs; see control --help
npm run bench -- scrape            measures how long traffic waits while metrics are read; fails above 20 ms
npm run bench -- abuse [flags]     treats the program badly, from outside; see abuse --help

  --rounds N      rounds of measurements, of which the median counts (3)
  --seconds N     seconds of each measurement (0.8)
  --only WORD     only the loads whose name has it: ${LOADS.map((load) => load.script).join(', ')}
  --json FILE     writes the figures to a file as well
  --write-docs    writes docs/benchmarks/loopback.json and the tables of docs/benchmarks.md
  --mib N         for integrity: MiB that are transferred (1024)`;

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
  const { rounds, seconds } = options;
  const idles: IdleReport[] = [];
  for (const size of IDLE_SIZES) {
    progress(`idle with ${size} service ports`);
    const report = await idle(size);
    if (report !== undefined) idles.push(report);
  }
  progress('');
  const date = new Date().toISOString().slice(0, 10);
  return { date, machine: machine(), rounds, seconds, peers, loads, idle: idles };
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

/** A number above 0, or a usage error. */
function positive(flag: string, text: string): number {
  const value = Number(text);
  if (value > 0 && Number.isFinite(value)) return value;
  throw new TypeError(`--${flag} ${JSON.stringify(text)}: expected a number above 0`);
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
function readArgs() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '0.8' },
      only: { type: 'string', default: '' },
      json: { type: 'string' },
      'write-docs': { type: 'boolean', default: false },
      mib: { type: 'string', default: '1024' },
      help: { type: 'boolean', default: false },
    },
  });
  const [what = 'traffic', ...rest] = positionals;
  if (!['traffic', 'integrity', 'state-file', 'scrape'].includes(what) || rest.length > 0) {
    throw new TypeError(
      `${positionals.join(' ')}: expected data, scaling, rest, integrity, portals, state-file, control, soak, scrape, abuse, or nothing`,
    );
  }
  if (!LOADS.some((load) => load.script.includes(values.only))) {
    const names = LOADS.map((load) => load.script).join(', ');
    throw new TypeError(`--only ${values.only}: expected a part of one of ${names}`);
  }
  return {
    what,
    rounds: Math.ceil(positive('rounds', values.rounds)),
    seconds: positive('seconds', values.seconds),
    mib: positive('mib', values.mib),
    only: values.only,
    json: values.json,
    writeDocs: values['write-docs'],
    help: values.help,
  };
}

async function main(args: ReturnType<typeof readArgs>): Promise<boolean> {
  if (args.help) {
    print(USAGE);
    return true;
  }
  if (args.what === 'state-file') {
    const { runStateFile } = await import('./state-file.ts');
    return runStateFile(print);
  }
  if (args.what === 'scrape') {
    const { runScrape } = await import('./scrape.ts');
    return runScrape(print);
  }
  if (args.what === 'integrity') return runIntegrity({ mib: args.mib, onLine: print });
  const { rounds, seconds, only } = args;
  const report = await measure({ rounds, seconds, only });
  show(report);
  if (args.json !== undefined) writeFileSync(args.json, `${JSON.stringify(report, null, 2)}\n`);
  if (args.writeDocs) {
    publishResults('loopback', loopbackResults(report));
  }
  return true;
}

/** A part of the suite that has flags of its own. */
interface Part<Plan> {
  readonly usage: string;
  readonly read: (flags: readonly string[]) => Plan;
  readonly run: (plan: Plan, onLine: typeof print, onProgress: typeof progress) => Promise<void>;
}

function part<Plan>({ usage, read, run }: Part<Plan>) {
  return (flags: readonly string[]): (() => Promise<boolean>) => {
    if (flags.includes('--help')) {
      return async () => {
        print(usage);
        return true;
      };
    }
    const plan = read(flags);
    return async () => {
      try {
        await run(plan, print, progress);
        return true;
      } catch (error) {
        process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
        return false;
      }
    };
  };
}

const PARTS: Readonly<Record<string, ReturnType<typeof part>>> = {
  portals: part({ usage: PORTALS_USAGE, read: readPortalArgs, run: runPortals }),
  data: part({ usage: DATA_USAGE, read: readDataArgs, run: runData }),
  scaling: part({ usage: SCALING_USAGE, read: readScalingArgs, run: runScaling }),
  rest: part({ usage: REST_USAGE, read: readRestArgs, run: runRest }),
  control: part({ usage: CONTROL_USAGE, read: readControlArgs, run: runControl }),
  soak: part({ usage: SOAK_USAGE, read: readSoakArgs, run: runSoak }),
  abuse: part({ usage: ABUSE_USAGE, read: readAbuseArgs, run: runAbuse }),
};

/** What to do, or undefined after saying what is wrong with the arguments. */
function tryRead(): (() => Promise<boolean>) | undefined {
  try {
    const [what = '', ...flags] = process.argv.slice(2);
    const other = PARTS[what];
    if (other !== undefined) return other(flags);
    const args = readArgs();
    return () => main(args);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    process.stderr.write(`${message}\nTo learn more: npm run bench -- --help\n`);
    return undefined;
  }
}

// Ending with `exit` ends the servers and removes the files as well.
process.on('SIGINT', () => process.exit(130)).on('SIGTERM', () => process.exit(143));

const action = tryRead();
if (action === undefined) process.exitCode = 2;
else process.exitCode = (await action()) ? 0 : 1;
