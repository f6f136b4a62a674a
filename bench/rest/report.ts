import { describeMachine, type Machine } from '../report/machine.ts';
import { asMarkdown, type Rows } from '../report/table.ts';
import type { RestPlan, RestResult } from './measure.ts';

export interface RestReport {
  readonly date: string;
  readonly machine: Machine;
  readonly descriptors: number;
  readonly plan: RestPlan;
  readonly results: readonly RestResult[];
}

const kib = (bytes: number): string => (bytes / 1024).toFixed(2);
const mib = (bytes: number): string => (bytes / 1024 ** 2).toFixed(0);
const percent = (value: number): string => `${value.toFixed(2)} %`;

/** Memory for one of each. */
export function eachRows({ results }: RestReport): Rows {
  return [
    ['engine', 'idle connection, KiB', 'UDP session, KiB', 'service port, KiB', 'endpoint, KiB'],
    ...results.map((result) => [
      result.engine,
      kib(result.connection),
      kib(result.session),
      kib(result.servicePort),
      kib(result.endpoint),
    ]),
  ];
}

/** CPU while nothing happens, and everything at once. */
export function restRows({ results, plan }: RestReport): Rows {
  const number = (value: number): string => value.toLocaleString('en');
  return [
    ['engine', 'with', 'its own MiB', 'CPU, of one core'],
    ...results.flatMap(({ engine, base, connection, together, ...cpu }) => [
      [engine, 'one service', mib(base), percent(cpu.idleCpu)],
      [
        '',
        `${number(plan.connections)} idle connections`,
        mib(base + connection * plan.connections),
        percent(cpu.idleCpuWithConnections),
      ],
      [
        '',
        `${number(plan.servicePorts)} service ports and ${number(together.connections)} idle connections`,
        mib(together.anonymous),
        percent(together.idleCpu),
      ],
    ]),
  ];
}

/** The section of docs/benchmarks.md. */
export function renderRest(report: RestReport): string {
  const { plan } = report;
  return `## At rest

Measured on ${report.date} on: ${describeMachine(report.machine)}; up to ${report.descriptors.toLocaleString('en')} file descriptors for
each process, of which a connection takes two, a UDP session and a service port one each.

${asMarkdown(eachRows(report), 1)}

Growth of the anonymous memory of the process, divided by ${plan.connections.toLocaleString('en')} connections and ${plan.sessions.toLocaleString('en')} UDP
sessions that have been used once, ${plan.servicePorts.toLocaleString('en')} service ports with one endpoint each, and ${plan.endpoints.toLocaleString('en')} endpoints of one service.
Garbage that was not collected yet is in it; buffers of the kernel are not.

${asMarkdown(restRows(report), 2)}

### Run it

    npm run bench -- rest                        both engines, about 2 minutes
    npm run bench -- rest --engines linux --connections 1000
    npm run bench -- rest --write-docs           writes this section
`;
}
