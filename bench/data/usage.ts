/** CPU of processes and of the whole machine, from /proc. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';
import { cpuSeconds, cpuSecondsWithPrograms } from '../support/process-usage.ts';

/** Seconds. */
export interface CpuUse {
  /** User and system time of the given processes. */
  readonly processes: number;
  /** Everything but idle time, of all cores: programs, kernel and interrupts. */
  readonly machine: number;
}

/** Clock ticks in a second, as /proc counts them on every Linux that runs Node. */
const TICKS = 100;

/** What has been used so far. */
export function cpuUse(pids: readonly number[]): CpuUse {
  return {
    processes: pids.reduce((sum, pid) => sum + (cpuSeconds(pid) ?? 0), 0),
    machine: machineBusy(),
  };
}

/** Of this program and all that it has started, whether they run or have ended. Seconds. */
export function cpuOfRun(): number {
  return withChildren(process.pid).reduce(
    (sum, pid) => sum + (cpuSecondsWithPrograms(pid) ?? 0),
    0,
  );
}

/** Share of all cores that is in use for a second, while nothing is measured yet. */
export async function busyShare(): Promise<number> {
  const [begin, before] = [performance.now(), cpuUse([]).machine];
  await wait(1000);
  const seconds = (performance.now() - begin) / 1000;
  return (cpuUse([]).machine - before) / seconds / availableParallelism();
}

export function since(before: CpuUse, pids: readonly number[]): CpuUse {
  const now = cpuUse(pids);
  return {
    processes: now.processes - before.processes,
    machine: now.machine - before.machine,
  };
}

/** Busy seconds from the first line of /proc/stat; 0 where there is none. */
function machineBusy(): number {
  const stat = existsSync('/proc/stat') ? readFileSync('/proc/stat', 'utf8') : '';
  const [, user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = (
    stat.split('\n', 1)[0] ?? ''
  )
    .split(/\s+/)
    .map(Number);
  return (user + nice + system + irq + softirq) / TICKS;
}

/** A process and those that it has started. */
export function withChildren(pid: number): number[] {
  const found = [pid];
  for (const parent of found) {
    try {
      for (const task of readdirSync(`/proc/${parent}/task`)) {
        const text = readFileSync(`/proc/${parent}/task/${task}/children`, 'utf8');
        found.push(...text.split(' ').filter(Boolean).map(Number));
      }
    } catch {
      // It has ended.
    }
  }
  return found;
}
