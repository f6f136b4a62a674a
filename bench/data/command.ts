/** `npm run bench -- data`: traffic, beside no proxy and other proxies. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describeMachine } from '../report/machine.ts';
import { publishResults } from '../report/page.ts';
import { asText } from '../report/table.ts';
import { writeJson } from '../support/command.ts';
import { isInstalled } from '../support/tools.ts';
import { measureData } from './measure.ts';
import { ROOT, type DataPlan } from './plan.ts';
import { dataResults } from './report/docs.ts';
import { renderPlots } from './report/plots.ts';
import { allTables, missingLines } from './report/tables.ts';
import type { DataReport } from './result.ts';

/** Measures, prints, and writes the files. Rejects when namespaces cannot be made here. */
export async function runData(
  plan: DataPlan,
  print: (text: string) => void,
  progress: (text: string) => void,
): Promise<void> {
  checkMachine();
  // Each program and folder of the run is ended or removed at the latest when this process ends.
  process.setMaxListeners(100);
  const measured = await measureData(plan, progress);
  const otherwise = await bulkAsTheMachineDoes(plan, progress);
  const report = otherwise === undefined ? measured : { ...measured, otherwise };
  progress('');
  print(`${describeMachine(report.machine)}\n`);
  for (const { title, rows } of allTables(report)) {
    print(`${title}\n\n${asText(rows, 1)}\n`);
  }
  for (const line of missingLines(report)) print(line);
  writeJson(plan.json, report);
  print(`took ${report.took.toFixed(0)} s; all figures: ${plan.json}`);
  if (plan.writeDocs) writeDocs(report);
}

/** Bulk loads with the congestion control of the machine; undefined when that was used anyway. */
async function bulkAsTheMachineDoes(
  plan: DataPlan,
  progress: (text: string) => void,
): Promise<DataReport | undefined> {
  const congestion = readFileSync('/proc/sys/net/ipv4/tcp_congestion_control', 'utf8').trim();
  const loads = plan.loads.filter((word) => word.startsWith('bulk'));
  if (congestion === plan.congestion || loads.length === 0) return undefined;
  return measureData({ ...plan, congestion, loads, idleConnections: 0 }, progress);
}

/** The data file, the tables of the page, and the plots that it shows. */
export function writeDocs(report: DataReport): void {
  for (const { file, svg } of renderPlots(report)) {
    const path = join(ROOT, 'docs', file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, svg);
  }
  publishResults('data', dataResults(report));
}

/** Throws an Error that says what is missing. */
export function checkMachine(): void {
  const missing = ['ip', 'nft', 'sysctl'].filter((command) => !isInstalled(command));
  if (missing.length > 0) throw new Error(`not on the PATH: ${missing.join(', ')}`);
  try {
    const name = `kpngbench-${process.pid}-try`;
    execFileSync('ip', ['netns', 'add', name], { stdio: 'pipe' });
    execFileSync('ip', ['netns', 'delete', name], { stdio: 'pipe' });
  } catch (cause) {
    throw new Error('no network namespace can be made; run it as root', { cause });
  }
}
