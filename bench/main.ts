/** `npm run bench`: what this proxy costs, and what it withstands. USAGE below has the parts, each part its flags. */
import { parseArgs } from 'node:util';
import { messageOf } from '../src/errors.ts';
import { ABUSE_USAGE, readAbuseArgs, runAbuse } from './abuse/command.ts';
import { CONTROL_USAGE, readControlArgs, runControl } from './control/command.ts';
import { runData } from './data/command.ts';
import { DATA_USAGE, readDataArgs } from './data/plan.ts';
import { runIntegrity } from './integrity.ts';
import { LOOPBACK_USAGE, positive, readLoopbackArgs, runLoopback } from './loopback/command.ts';
import { PORTALS_USAGE, readPortalArgs, runPortals } from './portals/command.ts';
import { readRestArgs, REST_USAGE, runRest } from './rest/command.ts';
import { readScalingArgs, runScaling, SCALING_USAGE } from './scaling/command.ts';
import { readSoakArgs, runSoak, SOAK_USAGE } from './soak/command.ts';

// A proxy that keeps what it has compiled takes 30 MiB more while it does.
delete process.env['NODE_COMPILE_CACHE'];

const USAGE = `${LOOPBACK_USAGE}

npm run bench -- data [flags]      measures traffic beside other proxies; see data --help
npm run bench -- scaling [flags]   measures both engines with several workers; see scaling --help
npm run bench -- rest [flags]      measures memory and CPU of an idle proxy; see rest --help
npm run bench -- integrity         checks that large transfers arrive intact, with an endpoint killed; --mib N (1024)
npm run bench -- portals [flags]   measures how fast portals write rules; see portals --help
npm run bench -- state-file        measures how long large state files take, and what waits meanwhile
npm run bench -- control [flags]   measures what serving kpng's API costs; see control --help
npm run bench -- soak [flags]      sends a million events, and fails when the heap grows; see soak --help
npm run bench -- scrape            measures how long traffic waits while metrics are read; fails above 20 ms
npm run bench -- abuse [flags]     treats the program badly, from outside; see abuse --help`;

function print(text: string): void {
  progress('');
  process.stdout.write(`${text}\n`);
}

/** One line on a terminal that the next one replaces; nothing elsewhere. */
function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001B[K${text}`);
}

/** A part of the suite. */
interface Part<Plan> {
  readonly usage: string;
  /** What the flags ask for; throws a TypeError that says what is wrong with them. */
  readonly read: (flags: readonly string[]) => Plan;
  /** Resolves with whether all is well, where it looks for that. */
  readonly run: (
    plan: Plan,
    onLine: typeof print,
    onProgress: typeof progress,
  ) => Promise<boolean | void>;
}

/** Reads the flags, and returns what to do. */
function part<Plan>({ usage, read, run }: Part<Plan>) {
  return (flags: readonly string[]): (() => Promise<boolean | void>) => {
    if (flags.includes('--help')) return async () => print(usage);
    const plan = read(flags);
    return () => run(plan, print, progress);
  };
}

function noFlags(args: readonly string[]): void {
  parseArgs({ args: [...args], options: {} });
}

const PARTS: Readonly<Record<string, ReturnType<typeof part>>> = {
  portals: part({ usage: PORTALS_USAGE, read: readPortalArgs, run: runPortals }),
  data: part({ usage: DATA_USAGE, read: readDataArgs, run: runData }),
  scaling: part({ usage: SCALING_USAGE, read: readScalingArgs, run: runScaling }),
  rest: part({ usage: REST_USAGE, read: readRestArgs, run: runRest }),
  control: part({ usage: CONTROL_USAGE, read: readControlArgs, run: runControl }),
  soak: part({ usage: SOAK_USAGE, read: readSoakArgs, run: runSoak }),
  abuse: part({ usage: ABUSE_USAGE, read: readAbuseArgs, run: runAbuse }),
  integrity: part({
    usage: USAGE,
    read(args) {
      const options = { mib: { type: 'string', default: '1024' } } as const;
      return positive('mib', parseArgs({ args: [...args], options }).values.mib);
    },
    run: (mib) => runIntegrity(mib, print),
  }),
  'state-file': part({
    usage: USAGE,
    read: noFlags,
    run: async () => (await import('./state-file.ts')).runStateFile(print),
  }),
  scrape: part({
    usage: USAGE,
    read: noFlags,
    run: async () => (await import('./scrape.ts')).runScrape(print),
  }),
};
const loopback = part({ usage: USAGE, read: readLoopbackArgs, run: runLoopback });

/** Runs what the arguments name; resolves with the exit code. */
async function main([word = '', ...flags]: readonly string[]): Promise<number> {
  let action: () => Promise<boolean | void>;
  try {
    if (word !== '' && !word.startsWith('-') && PARTS[word] === undefined) {
      throw new TypeError(`${word}: expected ${Object.keys(PARTS).join(', ')}, or nothing`);
    }
    action = PARTS[word]?.(flags) ?? loopback(word === '' ? [] : [word, ...flags]);
  } catch (error) {
    process.stderr.write(`${messageOf(error)}\nTo learn more: npm run bench -- --help\n`);
    return 2;
  }
  try {
    return (await action()) === false ? 1 : 0;
  } catch (error) {
    process.stderr.write(`${messageOf(error)}\n`);
    return 1;
  }
}

// Ending with `exit` ends the servers and removes the files as well.
process.on('SIGINT', () => process.exit(130)).on('SIGTERM', () => process.exit(143));

process.exitCode = await main(process.argv.slice(2));
