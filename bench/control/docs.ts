import { describeMachine, type Machine } from '../report/machine.ts';
import type { Results } from '../report/results.ts';
import type { Rows } from '../report/table.ts';
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

/** docs/benchmarks/control.json. */
export function controlResults(report: ControlReport): Results {
  const { date, services, endpoints, nodes, changes, result } = report;
  return {
    date,
    machine: describeMachine(report.machine),
    about: {
      services,
      endpoints,
      nodes,
      changes,
      'first Sync of a client, ms': ms(result.firstSync.ms),
    },
    tables: { Watchers: watcherRows(report) },
  };
}
