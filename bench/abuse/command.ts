/** `npm run bench -- abuse`: drives the program from outside with everything that peers can do wrong. */
import { setTimeout as wait } from 'node:timers/promises';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { BenchNetwork, ENDPOINT_ADDRESSES } from '../portals/network.ts';
import { publishResults } from '../report/page.ts';
import { readResults } from '../report/results.ts';
import {
  engineNamed,
  ENGINES,
  readFlags,
  writeJson,
  type EngineName,
  type Output,
  type Print,
} from '../support/command.ts';
import { isInstalled } from '../support/tools.ts';
import { abuseResults, resultLine } from './report.ts';
import { evaluate, Size, type Abuse, type Result } from './scenario.ts';
import { ABUSES } from './scenarios/all.ts';
import { Stage } from './stage.ts';
import { MemoryWatch } from './watch.ts';

export const ABUSE_USAGE = `npm run bench -- abuse [flags]   treats the program badly, from outside; fails if it does not bear that

  --short          less of everything, without verdicts on time: about 90 s
  --only WORD      only the scenarios whose name has it
  --engine NAME    node or linux (both; with --short one after the other in turns)
  --list           names the scenarios
  --json FILE      where the figures go (bench/results/abuse.json)
  --write-docs     writes docs/benchmarks/abuse.json and the table of docs/reference/robustness.md; with --only or --engine just those rows`;

interface Judged {
  readonly abuse: Abuse;
  readonly result: Result;
  readonly reasons: readonly string[];
}

interface AbuseCommand extends Output {
  readonly size: Size;
  readonly only: string;
  /** Undefined: all. */
  readonly engine: EngineName | undefined;
  readonly list: boolean;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readAbuseArgs(args: readonly string[]): AbuseCommand {
  const { values, output } = readFlags('abuse', args, {
    short: false,
    only: '',
    engine: '',
    list: false,
  });
  return {
    size: new Size(!values.short),
    only: values.only,
    engine: values.engine === '' ? undefined : engineNamed(values.engine),
    list: values.list,
    ...output,
  };
}

/** Runs them, prints a line for each, and writes the files. Rejects if one was not withstood. */
export async function runAbuse(
  command: AbuseCommand,
  print: Print,
  progress: Print,
): Promise<void> {
  const chosen = ABUSES.filter(({ name }) => name.includes(command.only));
  if (command.list) {
    for (const { name, title } of chosen) print(`${name.padEnd(24)} ${title}`);
    return;
  }
  const cache = tempFolder('abuse-cache');
  // Many short runs would spend most of their time compiling; a long one measures memory, which this adds to.
  if (!command.size.isLong) process.env['NODE_COMPILE_CACHE'] = cache.path;
  const results: Judged[] = [];
  for (const { abuse, engine } of plan(chosen, command)) {
    const missing = lacks(abuse);
    if (missing !== undefined) {
      print(`skip  ${abuse.name}: ${missing}`);
      continue;
    }
    progress(`${abuse.name}, ${engine}`);
    const result = await runOne(abuse, engine, command.size);
    const reasons = evaluate(abuse, result, command.size.isLong);
    results.push({ abuse, result, reasons });
    print(resultLine(result, reasons));
    write(command, results);
  }
  cache.remove();
  const failed = results.filter(({ reasons }) => reasons.length > 0).length;
  print(`\n${results.length - failed} withstood, ${failed} failed`);
  if (failed > 0) throw new Error(`${failed} scenarios failed`);
}

/** After each of them, so that a run which is broken off leaves what it has found. */
function write({ json, writeDocs, only, engine }: AbuseCommand, results: readonly Judged[]): void {
  writeJson(
    json,
    results.map((each) => each.result),
  );
  if (!writeDocs) return;
  const isWhole = only === '' && engine === undefined;
  const before = isWhole ? undefined : readResults('abuse');
  publishResults('abuse', abuseResults(results, before));
}

function plan(abuses: readonly Abuse[], { size, engine }: AbuseCommand) {
  return abuses
    .filter(({ short = true }) => short || size.isLong)
    .flatMap((abuse, index) => {
      const able = abuse.engines ?? ENGINES;
      const wanted = able.filter((each) => engine === undefined || each === engine);
      const turn = size.isLong || engine !== undefined ? wanted : [able[index % able.length]];
      return turn.flatMap((each) => (each === undefined ? [] : [{ abuse, engine: each }]));
    });
}

/** Why it cannot be run here. */
function lacks({ needs = [] }: Abuse): string | undefined {
  const has = (need: string): boolean =>
    need === 'root' ? process.getuid?.() === 0 : isInstalled(need);
  const missing = needs.filter((need) => !has(need));
  return missing.length === 0 ? undefined : `needs ${missing.join(', ')}`;
}

async function runOne(abuse: Abuse, engine: EngineName, size: Size): Promise<Result> {
  const begun = performance.now();
  const { name, title } = abuse;
  const network =
    abuse.needs?.includes('ip') === true ? new BenchNetwork({ local: false }) : undefined;
  const place = network && {
    inside: network.command(),
    controlIp: '10.96.0.1',
    endpointIp: ENDPOINT_ADDRESSES[0],
  };
  let stage: Stage | undefined;
  let watch: MemoryWatch | undefined;
  let outcome: Omit<Result, 'name' | 'title' | 'engine' | 'seconds'>;
  try {
    stage = await Stage.open(engine, place);
    const open = stage;
    const options = (await abuse.stage?.(stage)) ?? {};
    const carries = options.carries !== false;
    await stage.begin(options);
    watch = new MemoryWatch(() => open.proxy.pid);
    await stage.look();
    await wait(size.pick(300, 2000));
    const before = await stage.look();
    const rest = watch.look();
    const found = await abuse.run(stage, size).catch(failure);
    if (carries) await stage.serves().catch(() => undefined);
    const during = await stage.look();
    outcome = {
      ...found,
      ended: stage.proxy.end,
      memory: { rest, peak: watch.peak },
      control: carries ? { rest: before, during } : undefined,
    };
  } catch (error) {
    const memory = { rest: 0, peak: 0 };
    outcome = { ...failure(error), ended: undefined, memory, control: undefined };
  } finally {
    watch?.stop();
    await stage?.close();
    network?.remove();
  }
  return { ...outcome, name, title, engine, seconds: (performance.now() - begun) / 1000 };
}

function failure(error: unknown) {
  const text = error instanceof Error ? error.message : String(error);
  return { did: 'could not be completed', mistakes: [text.slice(0, 300)] };
}
