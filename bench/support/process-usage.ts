/** What a process has used, read from /proc. Undefined where there is no /proc. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

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
  const ticks = cpuTicks(pid);
  return ticks === undefined ? undefined : ticks.own / TICKS;
}

/** User and system time together, with that of the programs which it has run and which have ended. Seconds. */
export function cpuSecondsWithPrograms(pid: number): number | undefined {
  const ticks = cpuTicks(pid);
  return ticks === undefined ? undefined : (ticks.own + ticks.programs) / TICKS;
}

interface Ticks {
  readonly own: number;
  readonly programs: number;
}

function cpuTicks(pid: number): Ticks | undefined {
  const stat = read(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  // The name, in brackets, may hold blanks; the fields after it start with the state.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [user, system, programsUser, programsSystem] = fields.slice(11, 15).map(Number);
  return {
    own: (user ?? 0) + (system ?? 0),
    programs: (programsUser ?? 0) + (programsSystem ?? 0),
  };
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
