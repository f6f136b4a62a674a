import { describeMachine, type Machine } from '../report/machine.ts';
import { asMarkdown, type Rows } from '../report/table.ts';
import type { RestPlan, RestResult } from './measure.ts';
import type { RestMemory } from './scene.ts';

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
const percent = (value: number): string => `${value.toFixed(2)} %`;

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

/** CPU while nothing happens, and everything at once. */
export function restRows({ results, plan }: RestReport): Rows {
  const number = (value: number): string => value.toLocaleString('en');
  return [
    ['engine', 'with', 'its own MiB', 'CPU, of one core'],
    ...results.flatMap(({ engine, base, connection, together, ...cpu }) => [
      [engine, 'one service', mib(base.anonymous), percent(cpu.idleCpu)],
      [
        '',
        `${number(plan.connections)} idle connections`,
        mib(base.anonymous + connection.anonymous * plan.connections),
        percent(cpu.idleCpuWithConnections),
      ],
      [
        '',
        `${number(plan.servicePorts)} service ports and ${number(together.connections)} idle connections`,
        mib(together.memory.anonymous),
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

Growth in KiB: what lives in the main thread of JavaScript once garbage is collected / the anonymous memory of the process.
Divided by ${plan.connections.toLocaleString('en')} connections and ${plan.sessions.toLocaleString('en')} UDP sessions that have been used once, ${plan.servicePorts.toLocaleString('en')} service ports with one
endpoint each, and ${plan.endpoints.toLocaleString('en')} endpoints of one service. The state comes from a YAML file: most of the anonymous memory of service
ports and endpoints is what the allocator keeps after reading it. The thread of the \`linux\` engine is only in the second figure, with
its garbage. Buffers of the kernel are in neither.

${asMarkdown(restRows(report), 2)}

### Run it

    npm run bench -- rest                        both engines, about 2 minutes
    npm run bench -- rest --engines linux --connections 1000
    npm run bench -- rest --write-docs           writes this section
`;
}
