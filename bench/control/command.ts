/** `npm run bench -- control`: what serving the API costs, for how many watchers. */
import { parseArgs } from 'node:util';
import { describeMachine, machine } from '../report/machine.ts';
import { publishResults } from '../report/page.ts';
import { asText } from '../report/table.ts';
import { commonFlags, count, today, writeJson } from '../support/command.ts';
import { firstSyncRows, controlResults, watcherRows, type ControlReport } from './docs.ts';
import { measureControl, type ControlPlan } from './measure.ts';

export const CONTROL_USAGE = `npm run bench -- control [flags]   measures what serving kpng's API costs; needs /proc

  --services N    services, with ten endpoints each (10000)
  --nodes N       nodes that the endpoints are on (1000)
  --watchers LIST clients at once, each for a node of its own (1,100,1000)
  --changes N     endpoints that change, one after the other (50)
  --json FILE     where the figures go (bench/results/control.json)
  --write-docs    writes docs/benchmarks/control.json and the table of docs/benchmarks.md`;

const ENDPOINTS_PER_SERVICE = 10;
const FIRST_SYNCS = 3;

interface Plan extends ControlPlan {
  readonly json: string;
  readonly writeDocs: boolean;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readControlArgs(args: readonly string[]): Plan {
  const { values } = parseArgs({
    args: [...args],
    options: {
      services: { type: 'string', default: '10000' },
      nodes: { type: 'string', default: '1000' },
      watchers: { type: 'string', default: '1,100,1000' },
      changes: { type: 'string', default: '50' },
      ...commonFlags('control'),
    },
  });
  return {
    services: count('services', values.services),
    endpointsPerService: ENDPOINTS_PER_SERVICE,
    nodes: count('nodes', values.nodes),
    watchers: values.watchers
      .split(',')
      .map((text) => count('watchers', text))
      .sort((a, b) => a - b),
    changes: count('changes', values.changes),
    firstSyncs: FIRST_SYNCS,
    json: values.json,
    writeDocs: values['write-docs'],
  };
}

/** Measures, prints, and writes the files. */
export async function runControl(
  plan: Plan,
  print: (text: string) => void,
  progress: (text: string) => void,
): Promise<void> {
  const result = await measureControl(plan, progress);
  progress('');
  const report: ControlReport = {
    date: today(),
    machine: machine(),
    services: plan.services,
    endpoints: plan.services * plan.endpointsPerService,
    nodes: plan.nodes,
    changes: plan.changes,
    result,
  };
  print(`${describeMachine(report.machine)}\n`);
  print(asText(firstSyncRows(report), 1));
  print(`\n${asText(watcherRows(report), 1)}`);
  writeJson(plan.json, report);
  if (plan.writeDocs) publishResults('control', controlResults(report));
}
