import { describeMachine } from './machine.ts';
import type { Report } from './report.ts';
import type { Results } from './results.ts';
import { loadRows, memoryRows } from './table.ts';

/** docs/benchmarks/loopback.json. */
export function loopbackResults(report: Report): Results {
  const { date, machine, rounds, seconds } = report;
  return {
    date,
    machine: describeMachine(machine),
    about: { rounds, seconds },
    tables: { Traffic: loadRows(report), 'Idle memory': memoryRows(report) },
  };
}
