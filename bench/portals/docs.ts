import { describeMachine } from '../report/machine.ts';
import type { Results } from '../report/results.ts';
import type { PortalReport } from './result.ts';
import { changeRows, coldRows } from './table.ts';

/** docs/benchmarks/portals.json. */
export function portalResults(report: PortalReport): Results {
  const { date, machine, descriptors } = report;
  return {
    date,
    machine: describeMachine(machine),
    about: { descriptors },
    tables: {
      'From the first state to the last rule': coldRows(report),
      'One change': changeRows(report),
    },
  };
}
