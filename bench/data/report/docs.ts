import { describeMachine } from '../../report/machine.ts';
import type { Results } from '../../report/results.ts';
import type { DataReport } from '../result.ts';
import { allTables, missingLines } from './tables.ts';

/** docs/benchmarks/data.json. The tables of bulk with another congestion control have its name in their title. */
export function dataResults(report: DataReport): Results {
  const { date, machine, congestionControl, rounds, seconds, busyBefore, took, otherwise } = report;
  const tables = (each: DataReport, suffix: string) =>
    allTables(each).map(({ title, rows }) => [`${title}${suffix}`, rows] as const);
  return {
    date,
    machine: describeMachine(machine),
    about: {
      rounds,
      seconds,
      'congestion control': congestionControl,
      'idle connections': report.idleConnections,
      'busy before': `${(100 * busyBefore).toFixed(0)} %`,
      'took, minutes': (took / 60).toFixed(0),
    },
    tables: Object.fromEntries([
      ...tables(report, ''),
      ...(otherwise === undefined ? [] : tables(otherwise, `, ${otherwise.congestionControl}`)),
    ]),
    notes: missingLines(report),
  };
}
