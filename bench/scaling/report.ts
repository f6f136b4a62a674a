/** What `npm run bench -- scaling` has found, as tables and as a section of docs/benchmarks.md. */
import { describeMachine, type Machine } from '../report/machine.ts';
import { threeDigits } from '../report/stats.ts';
import { asMarkdown, type Rows } from '../report/table.ts';
import type { DataLoadResult, Missing } from '../data/result.ts';
import type { Cost } from './cost.ts';
import { CLIENTS } from './loads.ts';

/** The form of its JSON. */
export interface ScalingReport {
  readonly date: string;
  readonly machine: Machine;
  readonly rounds: number;
  readonly seconds: number;
  readonly peers: readonly { readonly word: string; readonly title: string }[];
  readonly loads: readonly DataLoadResult[];
  readonly costs: readonly Cost[];
  readonly missing: readonly Missing[];
  /** Share of all cores that something else used before the run began. */
  readonly busyBefore: number;
}

/** Rate and CPU of every load, with a column for each engine and number of workers. */
export function trafficRows({ loads, peers }: ScalingReport): Rows {
  const cells = (load: DataLoadResult, pick: 'rate' | 'own' | 'machine'): string[] =>
    peers.map(({ word }) => {
      const figure = load.results[word]?.[pick];
      if (figure === undefined) return '-';
      const { median, min, max, samples } = figure;
      const spread = samples > 1 ? ` (${threeDigits(min)}-${threeDigits(max)})` : '';
      return `${threeDigits(median)}${spread}`;
    });
  return [
    ['', 'figure', ...peers.map(({ title }) => title)],
    ...loads.flatMap((load) => [
      [load.title, load.rateUnit, ...cells(load, 'rate')],
      ['', `CPU of the proxy, ${load.cpuUnit}`, ...cells(load, 'own')],
      ['', `CPU of the machine, ${load.cpuUnit}`, ...cells(load, 'machine')],
    ]),
  ];
}

/** What each number of workers costs, whatever the traffic. */
export function costRows(costs: readonly Cost[]): Rows {
  const mib = (bytes: number): string => (bytes / 1024 ** 2).toFixed(0);
  return [
    [
      'engine',
      'workers',
      'MiB without service ports',
      'descriptors for each',
      'opening, CPU µs for each',
      'of that, main thread',
      'new endpoints, main thread',
      'reading counters, main thread',
    ],
    ...costs.map((cost) => {
      const each = (seconds: number): string => threeDigits((seconds / cost.servicePorts) * 1e6);
      return [
        cost.engine,
        String(cost.workers),
        mib(cost.emptyBytes),
        String(Math.round(cost.descriptors / (cost.servicePorts - 1))),
        each(cost.applyCpu),
        each(cost.applyMainCpu),
        each(cost.endpointsMainCpu),
        each(cost.scrapeMainCpu),
      ];
    }),
  ];
}

/** The section of docs/benchmarks.md. */
export function renderScaling(report: ScalingReport): string {
  const { date, machine, rounds, seconds, costs, missing, busyBefore } = report;
  const ports = costs[0]?.servicePorts.toLocaleString('en') ?? '';
  const costPart =
    costs.length === 0
      ? ''
      : `
### What a worker costs

An engine with ${ports} service ports of one TCP listener each, in a process without a source or metrics. Memory is that of
the whole process that is its own; times are CPU microseconds for each service port.

${asMarkdown(costRows(costs), 1)}
`;
  const left = missing.map(
    ({ peer, load, why }) => `* ${[peer, load].filter(Boolean).join(', ')}: ${why}`,
  );
  return `## Several workers

Measured on ${date} on: ${describeMachine(machine)}. Medians of ${rounds === 1 ? 'one round' : `${rounds} rounds`} of ${seconds} s; in brackets the
lowest and the highest. ${CLIENTS} client addresses, since workers share clients out by their address. Before it began, the machine
was ${(100 * busyBefore).toFixed(0)} % busy with something else. Clients, server and proxy share the cores: with ${machine.cores} of them, more workers can
only take from the others what these leave. What follows for larger machines is [below](#reasoned-for-64-cores).

${asMarkdown(trafficRows(report), 2)}
${costPart}${left.length === 0 ? '' : `\nNot measured:\n\n${left.join('\n')}\n`}`;
}
