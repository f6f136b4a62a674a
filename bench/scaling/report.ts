/** What `npm run bench -- scaling` has found, as tables. */
import { describeMachine, type Machine } from '../report/machine.ts';
import { threeDigits } from '../report/stats.ts';
import type { Results } from '../report/results.ts';
import type { Rows } from '../report/table.ts';
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

/** docs/benchmarks/scaling.json. */
export function scalingResults(report: ScalingReport): Results {
  const { date, rounds, seconds, costs, missing, busyBefore } = report;
  return {
    date,
    machine: describeMachine(report.machine),
    about: {
      rounds,
      seconds,
      'client addresses': CLIENTS,
      'busy before': `${(100 * busyBefore).toFixed(0)} %`,
      'service ports': costs[0]?.servicePorts ?? 0,
    },
    tables: {
      Traffic: trafficRows(report),
      'Cost of a worker': costRows(costs),
    },
    notes: missing.map(
      ({ peer, load, why }) => `missing: ${[peer, load].filter(Boolean).join(', ')}: ${why}`,
    ),
  };
}
