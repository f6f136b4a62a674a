import { describeMachine, type Machine } from '../report/machine.ts';
import type { Results } from '../report/results.ts';
import type { Rows } from '../report/table.ts';
import { totalCalls } from './calls.ts';
import type { RestIdle, RestPlan, RestResult } from './measure.ts';
import { RESERVED, type RestMemory } from './scene.ts';

export interface RestReport {
  readonly date: string;
  readonly machine: Machine;
  readonly descriptors: number;
  readonly plan: RestPlan;
  readonly results: readonly RestResult[];
}

const kib = ({ anonymous, heap }: RestMemory): string =>
  [heap, anonymous].map((bytes) => (bytes / 1024).toFixed(2)).join(' / ');
const mib = (bytes: number): string => (bytes / 1024 ** 2).toFixed(0);

/** Memory for one of each. */
export function eachRows({ results }: RestReport): Rows {
  return [
    ['engine', 'idle connection', 'UDP session', 'service port', 'endpoint'],
    ...results.map((result) => [
      result.engine,
      kib(result.connection),
      kib(result.session),
      kib(result.servicePort),
      kib(result.endpoint),
    ]),
  ];
}

const number = (value: number): string => value.toLocaleString('en');

/** What is done while nothing happens. */
export function restRows({ results, plan }: RestReport): Rows {
  const idleness = ({ cpu, calls }: RestIdle): string[] => [
    `${cpu.toFixed(2)} %`,
    calls === undefined ? '' : totalCalls(calls).toFixed(0),
  ];
  return [
    ['engine', 'with', 'its own MiB', 'CPU, of one core', 'system calls/s'],
    ...results.flatMap(({ engine, base, connection, together, ...result }) => [
      [engine, 'one service', mib(base.anonymous), ...idleness(result.idle)],
      [
        '',
        `${number(plan.connections)} idle connections`,
        mib(base.anonymous + connection.anonymous * plan.connections),
        ...idleness(result.idleWithConnections),
      ],
      [
        '',
        `${number(plan.servicePorts)} service ports and ${number(together.connections)} idle connections`,
        mib(together.memory.anonymous),
        ...idleness(together.idle),
      ],
    ]),
  ];
}

/** docs/benchmarks/rest.json. */
export function restResults(report: RestReport): Results {
  const { connections, sessions, servicePorts, endpoints, idleSeconds } = report.plan;
  return {
    date: report.date,
    machine: describeMachine(report.machine),
    about: {
      descriptors: report.descriptors,
      'reserved descriptors': RESERVED,
      connections,
      sessions,
      'service ports': servicePorts,
      endpoints,
      'idle seconds': idleSeconds,
    },
    tables: { 'Memory of each': eachRows(report), 'At rest': restRows(report) },
  };
}
