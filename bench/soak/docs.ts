import { describeMachine, type Machine } from '../report/machine.ts';
import type { Results } from '../report/results.ts';
import type { Rows } from '../report/table.ts';
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

/** docs/benchmarks/soak.json. */
export function soakResults(report: SoakReport): Results {
  const { watched, lists, changeSets, cpuMs, seconds, growth } = report.result;
  return {
    date: report.date,
    machine: describeMachine(report.machine),
    about: {
      services: report.services,
      'events over watches': watched,
      lists,
      'change sets': changeSets,
      'CPU of an event, ms': cpuMs.toFixed(3),
      seconds: seconds.toFixed(0),
      'growth of the heap, bytes': growth,
    },
    tables: { Memory: markRows(report) },
  };
}
