/** What `npm run bench -- scaling` has found, as tables. */
import { describeMachine, type Machine } from '../report/machine.ts';
import { threeDigits } from '../report/stats.ts';
import type { Results } from '../report/results.ts';
import type { Rows } from '../report/table.ts';
import type { DataLoadResult, Missing } from '../data/result.ts';
import { CLIENTS } from './loads.ts';

/** The form of its JSON. */
export interface ScalingReport {
  readonly date: string;
  readonly machine: Machine;
  readonly rounds: number;
  readonly seconds: number;
  readonly peers: readonly { readonly word: string; readonly title: string }[];
  readonly loads: readonly DataLoadResult[];
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

/** docs/benchmarks/scaling.json. */
export function scalingResults(report: ScalingReport): Results {
  const { date, rounds, seconds, missing, busyBefore } = report;
  return {
    date,
    machine: describeMachine(report.machine),
    about: {
      rounds,
      seconds,
      'client addresses': CLIENTS,
      'busy before': `${(100 * busyBefore).toFixed(0)} %`,
    },
    tables: { Traffic: trafficRows(report) },
    notes: missing.map(
      ({ peer, load, why }) => `missing: ${[peer, load].filter(Boolean).join(', ')}: ${why}`,
    ),
  };
}
