/** `npm run bench -- soak`: very many events, and a heap that stays flat. */
import { parseArgs } from 'node:util';
import { describeMachine, machine } from '../report/machine.ts';
import { publishResults } from '../report/page.ts';
import { asText } from '../report/table.ts';
import { count, today } from '../support/command.ts';
import { markRows, soakResults, type SoakReport } from './docs.ts';
import { MAX_GROWTH, measureSoak, type SoakPlan } from './measure.ts';

export const SOAK_USAGE = `npm run bench -- soak [flags]   sends events through kube to-api; fails when its heap grows; needs /proc

  --events N      events (1000000)
  --services N    services that they are about (200)
  --write-docs    writes docs/benchmarks/soak.json and the table of docs/benchmarks.md`;

interface Plan extends SoakPlan {
  readonly writeDocs: boolean;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readSoakArgs(args: readonly string[]): Plan {
  const { values } = parseArgs({
    args: [...args],
    options: {
      events: { type: 'string', default: '1000000' },
      services: { type: 'string', default: '200' },
      'write-docs': { type: 'boolean', default: false },
    },
  });
  return {
    events: count('events', values.events, 1000, 1_000_000_000),
    services: count('services', values.services, 1, 10_000),
    writeDocs: values['write-docs'],
  };
}

/** Runs it, prints, and writes the page. Fails when the heap is not flat. */
export async function runSoak(
  plan: Plan,
  print: (text: string) => void,
  progress: (text: string) => void,
): Promise<void> {
  const result = await measureSoak(plan, progress);
  progress('');
  const report: SoakReport = {
    date: today(),
    machine: machine(),
    services: plan.services,
    result,
  };
  print(`${describeMachine(report.machine)}\n`);
  print(asText(markRows(report), 0));
  print(
    `\n${result.watched} events over watches, ${result.lists} lists, ${result.changeSets} change sets in ` +
      `${result.seconds.toFixed(1)} s; ${result.cpuMs.toFixed(3)} ms of CPU for each event; the heap has ` +
      `grown by ${result.growth} bytes`,
  );
  if (result.growth > MAX_GROWTH) {
    throw new Error(`the heap is not flat: more than ${MAX_GROWTH} bytes`);
  }
  if (plan.writeDocs) publishResults('soak', soakResults(report));
}
