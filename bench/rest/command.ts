/** `npm run bench -- rest`: memory and CPU of an idle proxy. */
import { parseArgs } from 'node:util';
import { processDescriptorLimit } from '../../src/proxysocket/core/descriptors.ts';
import { describeMachine, machine } from '../report/machine.ts';
import { publishResults } from '../report/page.ts';
import { asText } from '../report/table.ts';
import { commonFlags, count, engineNamed, ENGINES, today, writeJson } from '../support/command.ts';
import { connectionsBeside, measureRest, sessionsWithin, type RestPlan } from './measure.ts';
import { eachRows, restResults, restRows, type RestReport } from './report.ts';

export const REST_USAGE = `npm run bench -- rest [flags]   measures memory and CPU of an idle proxy; needs /proc

  --engines LIST     node, linux (both)
  --connections N    idle connections (10000, or as many as the descriptors of a process allow)
  --sessions N       UDP sessions (10000, or half of the descriptors)
  --service-ports N  service ports (10000)
  --endpoints N      endpoints of one service (10000)
  --idle N           seconds that CPU is watched, and system calls after that (5)
  --json FILE        where the figures go (bench/results/rest.json)
  --write-docs       writes docs/benchmarks/rest.json and the tables of docs/benchmarks.md`;

interface RestCommand extends RestPlan {
  readonly json: string;
  readonly writeDocs: boolean;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readRestArgs(args: readonly string[]): RestCommand {
  const { values } = parseArgs({
    args: [...args],
    options: {
      engines: { type: 'string', default: ENGINES.join(',') },
      connections: { type: 'string', default: '10000' },
      sessions: { type: 'string', default: '10000' },
      'service-ports': { type: 'string', default: '10000' },
      endpoints: { type: 'string', default: '10000' },
      idle: { type: 'string', default: '5' },
      ...commonFlags('rest'),
    },
  });
  return {
    engines: values.engines.split(',').map(engineNamed),
    connections: connectionsBeside(0, count('connections', values.connections)),
    sessions: sessionsWithin(count('sessions', values.sessions)),
    servicePorts: count('service-ports', values['service-ports']),
    endpoints: count('endpoints', values.endpoints),
    idleSeconds: count('idle', values.idle),
    json: values.json,
    writeDocs: values['write-docs'],
  };
}

/** Measures, prints, and writes the files. */
export async function runRest(
  command: RestCommand,
  print: (text: string) => void,
  progress: (text: string) => void,
): Promise<void> {
  process.setMaxListeners(50);
  const { json, writeDocs, ...plan } = command;
  const results = await measureRest(plan, progress);
  progress('');
  const report: RestReport = {
    date: today(),
    machine: machine(),
    descriptors: processDescriptorLimit(),
    plan,
    results,
  };
  print(`${describeMachine(report.machine)}\n`);
  print(asText(eachRows(report), 1));
  print(`\n${asText(restRows(report), 2)}`);
  writeJson(json, report);
  if (writeDocs) publishResults('rest', restResults(report));
}
