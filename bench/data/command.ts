/** `npm run bench -- data`: traffic, beside no proxy and other proxies. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { report } from '../report/page.ts';
import type { Rows } from '../report/table.ts';
import type { Print } from '../support/command.ts';
import { measureData } from './measure.ts';
import { ROOT, type DataPlan } from './plan.ts';
import { renderPlots } from './report/plots.ts';
import { allTables, missingLines } from './report/tables.ts';
import type { DataReport } from './result.ts';

/** Measures, prints, and writes the files. Rejects when namespaces cannot be made here. */
export async function runData(plan: DataPlan, print: Print, progress: Print): Promise<void> {
  const measured = await measureData(plan, progress);
  const otherwise = await bulkAsTheMachineDoes(plan, progress);
  const about = {
    rounds: plan.rounds,
    seconds: plan.seconds,
    'congestion control': plan.congestion,
    'idle connections': plan.idleConnections,
    'busy before': `${(100 * measured.busyBefore).toFixed(0)} %`,
    'took, minutes': (measured.took / 60).toFixed(0),
  };
  // The tables of bulk with another congestion control have its name in their title.
  const others = Object.entries(otherwise === undefined ? {} : allTables(otherwise.report));
  const tables: Record<string, Rows> = {
    ...allTables(measured),
    ...Object.fromEntries(
      others.map(([title, rows]) => [`${title}, ${otherwise?.congestion}`, rows]),
    ),
  };
  if (plan.writeDocs) writePlots(measured);
  const findings = { about, tables, notes: missingLines(measured) };
  report('data', plan, findings, { ...measured, otherwise }, print);
}

/** Bulk loads with the congestion control of the machine; undefined when that was used anyway. */
async function bulkAsTheMachineDoes(plan: DataPlan, progress: Print) {
  const congestion = readFileSync('/proc/sys/net/ipv4/tcp_congestion_control', 'utf8').trim();
  const loads = plan.loads.filter((word) => word.startsWith('bulk'));
  if (congestion === plan.congestion || loads.length === 0) return undefined;
  const bulk = { ...plan, congestion, loads, idleConnections: 0 };
  return { congestion, report: await measureData(bulk, progress) };
}

/** The plots that the page shows. */
function writePlots(measured: DataReport): void {
  for (const { file, svg } of renderPlots(measured)) {
    const path = join(ROOT, 'docs', file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, svg);
  }
}
