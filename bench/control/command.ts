/** `npm run bench -- control`: what serving the API costs, for how many watchers. */
import { report } from '../report/page.ts';
import type { Rows } from '../report/table.ts';
import { count, readFlags, type Output, type Print } from '../support/command.ts';
import { measureControl, type ControlPlan, type ControlResult } from './measure.ts';

export const CONTROL_USAGE = `npm run bench -- control [flags]   measures what serving kpng's API costs; needs /proc

  --services N    services, with ten endpoints each (10000)
  --nodes N       nodes that the endpoints are on (1000)
  --watchers LIST clients at once, each for a node of its own (1,100,1000)
  --changes N     endpoints that change, one after the other (50)
  --json FILE     where the figures go (bench/results/control.json)
  --write-docs    writes docs/benchmarks/control.json and the table of docs/benchmarks.md`;

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readControlArgs(args: readonly string[]): ControlPlan & Output {
  const { values, output } = readFlags('control', args, {
    services: '10000',
    nodes: '1000',
    watchers: '1,100,1000',
    changes: '50',
  });
  return {
    services: count('services', values.services),
    nodes: count('nodes', values.nodes),
    watchers: values.watchers
      .split(',')
      .map((text) => count('watchers', text))
      .sort((a, b) => a - b),
    changes: count('changes', values.changes),
    ...output,
  };
}

const mb = (bytes: number): string => (bytes / 1e6).toFixed(0);
const ms = (value: number): string => (value < 10 ? value.toFixed(2) : value.toFixed(0));

/** Measures, prints, and writes the files. */
export async function runControl(
  plan: ControlPlan & Output,
  print: Print,
  progress: Print,
): Promise<void> {
  const result = await measureControl(plan, progress);
  const { services, nodes, changes } = plan;
  const { firstSync } = result;
  const about = {
    services,
    endpoints: firstSync.endpoints,
    nodes,
    changes,
    'first Sync of a client, ms': ms(firstSync.ms),
  };
  report('control', plan, { about, tables: { Watchers: watcherRows(result) } }, { result }, print);
}

function watcherRows({ residentBefore, results }: ControlResult): Rows {
  return [
    [
      'watchers',
      'CPU ms for one change',
      'change seen by all after ms',
      'CPU ms for one more watcher',
      'resident MB',
    ],
    ['0', '-', '-', '-', mb(residentBefore)],
    ...results.map((each) => [
      each.watchers.toLocaleString('en'),
      ms(each.cpuMs),
      ms(each.changeMs),
      ms(each.connectCpuMs),
      mb(each.resident),
    ]),
  ];
}
