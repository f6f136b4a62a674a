import { describeMachine, type Machine } from '../report/machine.ts';
import { asMarkdown, type Rows } from '../report/table.ts';
import type { SoakResult } from './measure.ts';

export interface SoakReport {
  readonly date: string;
  readonly machine: Machine;
  readonly services: number;
  readonly result: SoakResult;
}

const number = (value: number): string => value.toLocaleString('en');
const mb = (bytes: number): string => (bytes / 1e6).toFixed(1);

export function markRows({ result }: SoakReport): Rows {
  return [
    ['events', 'heap MB', 'resident MB'],
    ...result.marks.map(({ events, heap, resident }) => [number(events), mb(heap), mb(resident)]),
  ];
}

function growthText(growth: number): string {
  const bytes = number(Math.abs(growth));
  return growth > 0 ? `${bytes} bytes more` : `${bytes} bytes less`;
}

/** The section of docs/benchmarks.md. */
export function renderSection(report: SoakReport): string {
  const { result, services } = report;
  const events = result.marks.at(-1)?.events ?? 0;
  return `## Many events

Measured on ${report.date} on: ${describeMachine(report.machine)}. ${number(events)} events of ${number(services)} Services,
their EndpointSlices and some Nodes went through \`kube to-api\` to three clients in ${result.seconds.toFixed(0)} s: ${number(result.watched)} over
watches, the others with ${number(result.lists)} lists after connections that were cut and versions that were lost. The clients got
${number(result.changeSets)} change sets, and in the end the state of the API. One event took ${result.cpuMs.toFixed(3)} ms of CPU.

${asMarkdown(markRows(report), 0)}

*Heap* is what is in use after a full collection: ${growthText(result.growth)} since the second line. The run fails when it grows by
more than 1.5 MB, or when a client does not get everything.

### Run it

<!-- not run: takes minutes -->
\`\`\`sh
npm run bench -- soak                       # a million events
npm run bench -- soak --events 20000
npm run bench -- soak --write-docs          # writes this section
\`\`\`
`;
}
