/** `npm run bench -- soak`: very many events, and a heap that stays flat. */
import { report } from '../report/page.ts';
import { count, readFlags, type Output, type Print } from '../support/command.ts';
import { MAX_GROWTH, measureSoak, type SoakPlan } from './measure.ts';

export const SOAK_USAGE = `npm run bench -- soak [flags]   sends events through kube to-api; fails when its heap grows; needs /proc

  --events N      events (1000000)
  --services N    services that they are about (200)
  --json FILE     where the figures go (bench/results/soak.json)
  --write-docs    writes docs/benchmarks/soak.json and the table of docs/benchmarks.md`;

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readSoakArgs(args: readonly string[]): SoakPlan & Output {
  const { values, output } = readFlags('soak', args, {
    events: '1000000',
    services: '200',
  });
  return {
    events: count('events', values.events, 1000, 1_000_000_000),
    services: count('services', values.services, 1, 10_000),
    ...output,
  };
}

const mb = (bytes: number): string => (bytes / 1e6).toFixed(1);

/** Runs it, prints, and writes the files. Fails when the heap is not flat; then the page stays as it is. */
export async function runSoak(
  plan: SoakPlan & Output,
  print: Print,
  progress: Print,
): Promise<void> {
  const result = await measureSoak(plan, progress);
  const { growth, marks } = result;
  const isFlat = growth <= MAX_GROWTH;
  const about = {
    services: plan.services,
    'events over watches': result.watched,
    lists: result.lists,
    'change sets': result.changeSets,
    'CPU of an event, ms': result.cpuMs.toFixed(3),
    seconds: result.seconds.toFixed(0),
    'growth of the heap, bytes': growth,
  };
  const rows = marks.map(({ events, heap, resident }) => [
    events.toLocaleString('en'),
    mb(heap),
    mb(resident),
  ]);
  const tables = { Memory: [['events', 'heap MB', 'resident MB'], ...rows] };
  const output = { ...plan, writeDocs: plan.writeDocs && isFlat };
  report('soak', output, { about, tables }, { result }, print);
  if (!isFlat) throw new Error(`the heap is not flat: more than ${MAX_GROWTH} bytes`);
}
