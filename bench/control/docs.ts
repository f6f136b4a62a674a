import { describeMachine, type Machine } from '../report/machine.ts';
import { asMarkdown, type Rows } from '../report/table.ts';
import type { ControlResult } from './measure.ts';

export interface ControlReport {
  readonly date: string;
  readonly machine: Machine;
  readonly services: number;
  readonly endpoints: number;
  readonly nodes: number;
  readonly changes: number;
  readonly result: ControlResult;
}

const mb = (bytes: number): string => (bytes / 1e6).toFixed(0);
const ms = (value: number): string => (value < 10 ? value.toFixed(2) : value.toFixed(0));

export function firstSyncRows({ result }: ControlReport): Rows {
  const { firstSync } = result;
  return [
    ['a local client', 'services', 'endpoints', 'first Sync after ms'],
    ['', String(firstSync.services), String(firstSync.endpoints), ms(firstSync.ms)],
  ];
}

export function watcherRows({ result }: ControlReport): Rows {
  return [
    [
      'watchers',
      'CPU ms for one change',
      'change seen by all after ms',
      'CPU ms for one more watcher',
      'resident MB',
    ],
    ['0', '-', '-', '-', mb(result.residentBefore)],
    ...result.results.map((each) => [
      each.watchers.toLocaleString('en'),
      ms(each.cpuMs),
      ms(each.changeMs),
      ms(each.connectCpuMs),
      mb(each.resident),
    ]),
  ];
}

/** The section of docs/benchmarks.md. */
export function renderSection(report: ControlReport): string {
  const { services, endpoints, nodes, changes, result } = report;
  const number = (value: number): string => value.toLocaleString('en');
  return `## Serving the API

Measured on ${report.date} on: ${describeMachine(report.machine)}. The state has ${number(services)} services with
${number(endpoints)} endpoints on ${number(nodes)} nodes.

A client of the local API (\`local\`, such as \`kpng-json\`) has all of it, decoded and checked, ${ms(result.firstSync.ms)} ms
after it began to connect.

${asMarkdown(watcherRows(report), 1)}

* Each watcher has a connection of its own and asks for another node.
* *One change*: one endpoint of one service gets another address. CPU is user and system time of the server's process until every
  watcher has the change and has asked for the next one; the mean of ${changes} changes. The time is a median, and has the clients
  of the benchmark in it, which share the machine.
* *One more watcher*: a new client is told the whole state.
* *Resident* is everything of the server's process that is in memory.

### Run it

<!-- not run: takes minutes -->
\`\`\`sh
npm run bench -- control                    # 10,000 services; 1, 100 and 1,000 watchers
npm run bench -- control --watchers 5000
npm run bench -- control --write-docs       # writes this section
\`\`\`
`;
}
