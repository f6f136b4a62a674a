/** `npm run bench -- rest`: memory and CPU of an idle proxy. */
import { processDescriptorLimit } from '../../src/proxysocket/core/descriptors.ts';
import { report } from '../report/page.ts';
import type { Rows } from '../report/table.ts';
import {
  count,
  engineNamed,
  ENGINES,
  readFlags,
  type Output,
  type Print,
} from '../support/command.ts';
import { totalCalls } from './calls.ts';
import {
  connectionsBeside,
  measureRest,
  sessionsWithin,
  type RestIdle,
  type RestPlan,
  type RestResult,
} from './measure.ts';
import { RESERVED, type RestMemory } from './scene.ts';

export const REST_USAGE = `npm run bench -- rest [flags]   measures memory and CPU of an idle proxy; needs /proc

  --engines LIST     node, linux (both)
  --connections N    idle connections (10000, or as many as the descriptors of a process allow)
  --sessions N       UDP sessions (10000, or half of the descriptors)
  --service-ports N  service ports (10000)
  --endpoints N      endpoints of one service (10000)
  --idle N           seconds that CPU is watched, and system calls after that (5)
  --json FILE        where the figures go (bench/results/rest.json)
  --write-docs       writes docs/benchmarks/rest.json and the tables of docs/benchmarks.md`;

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readRestArgs(args: readonly string[]): RestPlan & Output {
  const { values, output } = readFlags('rest', args, {
    engines: ENGINES.join(','),
    connections: '10000',
    sessions: '10000',
    'service-ports': '10000',
    endpoints: '10000',
    idle: '5',
  });
  return {
    engines: values.engines.split(',').map(engineNamed),
    connections: connectionsBeside(0, count('connections', values.connections)),
    sessions: sessionsWithin(count('sessions', values.sessions)),
    servicePorts: count('service-ports', values['service-ports']),
    endpoints: count('endpoints', values.endpoints),
    idleSeconds: count('idle', values.idle),
    ...output,
  };
}

/** Measures, prints, and writes the files. */
export async function runRest(
  plan: RestPlan & Output,
  print: Print,
  progress: Print,
): Promise<void> {
  process.setMaxListeners(50);
  const results = await measureRest(plan, progress);
  const about = {
    descriptors: processDescriptorLimit(),
    'reserved descriptors': RESERVED,
    connections: plan.connections,
    sessions: plan.sessions,
    'service ports': plan.servicePorts,
    endpoints: plan.endpoints,
    'idle seconds': plan.idleSeconds,
  };
  const tables = { 'Memory of each': eachRows(results), 'At rest': restRows(results, plan) };
  report('rest', plan, { about, tables }, { results }, print);
}

const number = (value: number): string => value.toLocaleString('en');
const kib = ({ anonymous, heap }: RestMemory): string =>
  [heap, anonymous].map((bytes) => (bytes / 1024).toFixed(2)).join(' / ');
const mib = (bytes: number): string => (bytes / 1024 ** 2).toFixed(0);

/** Memory for one of each. */
function eachRows(results: readonly RestResult[]): Rows {
  return [
    ['engine', 'idle connection', 'UDP session', 'service port', 'endpoint'],
    ...results.map(({ engine, connection, session, servicePort, endpoint }) => [
      engine,
      ...[connection, session, servicePort, endpoint].map(kib),
    ]),
  ];
}

/** What is done while nothing happens. */
function restRows(results: readonly RestResult[], { connections, servicePorts }: RestPlan): Rows {
  const row = (engine: string, what: string, bytes: number, { cpu, calls }: RestIdle): string[] => [
    engine,
    what,
    mib(bytes),
    `${cpu.toFixed(2)} %`,
    calls === undefined ? '' : totalCalls(calls).toFixed(0),
  ];
  return [
    ['engine', 'with', 'its own MiB', 'CPU, of one core', 'system calls/s'],
    ...results.flatMap(({ engine, base, connection, together, twoWorkers, ...result }) => [
      row(engine, 'one service', base.anonymous, result.idle),
      ...(twoWorkers === undefined
        ? []
        : [row('', 'one service, two workers', twoWorkers.memory.anonymous, twoWorkers.idle)]),
      row(
        '',
        `${number(connections)} idle connections`,
        base.anonymous + connection.anonymous * connections,
        result.idleWithConnections,
      ),
      row(
        '',
        `${number(servicePorts)} service ports and ${number(together.connections)} idle connections`,
        together.memory.anonymous,
        together.idle,
      ),
    ]),
  ];
}
