/** What processes and the whole machine have used, read from /proc. Undefined where there is no /proc. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';

/** Clock ticks in a second, as /proc counts them; 100 wherever Linux runs Node. */
const TICKS = readTicks();

function readTicks(): number {
  try {
    return Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }).trim()) || 100;
  } catch {
    return 100;
  }
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

/** User and system time of all threads together. Seconds. */
export function cpuSeconds(pid: number): number | undefined {
  return cpuOf(pid, 11, 13);
}

/** User and system time together, with that of the programs which it has run and which have ended. Seconds. */
export function cpuSecondsWithPrograms(pid: number): number | undefined {
  return cpuOf(pid, 11, 15);
}

/** Of this program and all that it has started, whether they run or have ended. Seconds. */
export function cpuOfRun(): number {
  return sumOf(withChildren(process.pid), cpuSecondsWithPrograms);
}

/** The sum of some fields of its state. */
function cpuOf(pid: number, from: number, to: number): number | undefined {
  const stat = read(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  // The name, in brackets, may hold blanks; the fields after it start with the state.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.slice(from, to).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS;
}

function sumOf(pids: readonly number[], used: (pid: number) => number | undefined): number {
  return pids.reduce((sum, pid) => sum + (used(pid) ?? 0), 0);
}

/** Seconds. */
export interface CpuUse {
  /** User and system time of the given processes. */
  readonly processes: number;
  /** Everything but idle time, of all cores: programs, kernel and interrupts. */
  readonly machine: number;
}

/** What has been used so far, or since then. */
export function cpuUse(
  pids: readonly number[],
  since: CpuUse = { processes: 0, machine: 0 },
): CpuUse {
  const [line = ''] = (read('/proc/stat') ?? '').split('\n', 1);
  const [, user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = line
    .split(/\s+/)
    .map(Number);
  return {
    processes: sumOf(pids, cpuSeconds) - since.processes,
    machine: (user + nice + system + irq + softirq) / TICKS - since.machine,
  };
}

/** Share of all cores that is in use for a second, while nothing is measured yet. */
export async function busyShare(): Promise<number> {
  const [begin, before] = [performance.now(), cpuUse([])];
  await wait(1000);
  const seconds = (performance.now() - begin) / 1000;
  return cpuUse([], before).machine / seconds / availableParallelism();
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

export interface Memory {
  /** Everything of the process that is in memory, its program file too. Bytes. */
  readonly resident: number;
  /** The part that belongs to it alone: heap, stacks, buffers. Bytes. */
  readonly anonymous: number;
}

/** Memory of the process now. */
export function memory(pid: number): Memory | undefined {
  const status = read(`/proc/${pid}/status`);
  if (status === undefined) return undefined;
  const field = (name: string): number =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0) * 1024;
  return { resident: field('VmRSS'), anonymous: field('RssAnon') };
}

/**
 * Looks at a figure until it has stayed within 0.5 % for half a second, for at most four seconds, and
 * resolves with it. For memory, which a garbage collector gives back when it has the time.
 */
export async function settled(read: () => number): Promise<number> {
  let last = read();
  for (let quiet = 0, looks = 0; quiet < 2 && looks < 16; looks += 1) {
    await wait(250);
    const now = read();
    quiet = Math.abs(now - last) < last / 200 ? quiet + 1 : 0;
    last = now;
  }
  return last;
}
