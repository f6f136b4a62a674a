import { describeMachine, type Machine } from '../report/machine.ts';
import { asMarkdown, type Rows } from '../report/table.ts';
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

/** Names of system calls that the page tells, at most. */
const NAMED = 4;

/** How idleness was measured, and which calls were the most frequent with all service ports. */
function watched({ plan, results }: RestReport): string {
  const cpu = `CPU was watched for ${plan.idleSeconds} seconds`;
  const most = results.flatMap(({ engine, together }) => {
    if (together.idle.calls === undefined) return [];
    const sorted = Object.entries(together.idle.calls).sort(([, one], [, other]) => other - one);
    const named = sorted.slice(0, NAMED).map(([name, count]) => `${count.toFixed(1)} \`${name}\``);
    return named.length === 0 ? [] : [`with \`${engine}\` ${named.join(', ')}`];
  });
  if (results.every(({ together }) => together.idle.calls === undefined)) return `${cpu}.`;
  return `${cpu}, and system calls of all threads for as long after that, with \`strace -c\`.${
    most.length === 0
      ? ''
      : `\nThe most frequent in the last of these rows, for each second: ${most.join('; ')}.`
  }`;
}

/** The section of docs/benchmarks.md. */
export function renderRest(report: RestReport): string {
  const { plan, descriptors } = report;
  return `## At rest

Measured on ${report.date} on: ${describeMachine(report.machine)}.

One proxy process, with the clients and the endpoint in processes of their own. It may have ${number(descriptors)} file descriptors
(\`ulimit -Hn\` of the machine). An idle connection takes two, a service port one, a UDP session one, of which there
are never more than half; ${RESERVED} are left alone (\`--reserved-descriptors=${RESERVED}\`). So
${number(plan.connections)} connections were opened to one service port, ${number(plan.sessions)} UDP sessions to another one, and
${number(plan.servicePorts)} service ports leave room for ${number(report.results[0]?.together.connections ?? 0)} connections beside them.

${asMarkdown(eachRows(report), 1)}

Growth in KiB: what lives in the main thread of JavaScript once garbage is collected / the anonymous memory of the process.
Divided by the connections and UDP sessions, each of which has been used once, by ${number(plan.servicePorts)} service ports with one
endpoint each, and by ${number(plan.endpoints)} endpoints of one service. The state comes from a YAML file: most of the anonymous memory of service
ports and endpoints is what the allocator keeps after reading it. The thread of the \`linux\` engine is only in the second figure, with
its garbage. Buffers of the kernel are in neither.

${asMarkdown(restRows(report), 2)}

${watched(report)}

### Run it

<!-- not run: takes minutes -->
\`\`\`sh
npm run bench -- rest                        # both engines, about 3 minutes
npm run bench -- rest --engines linux --connections 1000
npm run bench -- rest --write-docs           # writes this section
\`\`\`
`;
}
