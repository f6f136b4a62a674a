import { readFileSync } from 'node:fs';

/** What the system tells about processes, and about the time since it was started. */
export interface ProcessFacts {
  /** Another one after each boot. */
  bootId(): string;
  /**
   * When a process began, in ticks since the boot; with its number that names one process, and no other.
   * Undefined where there is none, or where it has ended and nobody has taken note yet.
   */
  startOf(pid: number): number | undefined;
  /** How many processes were killed since the boot because memory had run out. */
  oomKills(): number;
}

/** From `/proc`. What cannot be read there is an empty text, undefined, or 0. */
export const linuxFacts: ProcessFacts = {
  bootId: () => read('/proc/sys/kernel/random/boot_id').trim(),
  startOf: (pid) => startIn(read(`/proc/${pid}/stat`)),
  // Of the whole machine, and also those that only the limit of a container was too low for.
  oomKills: () => Number(/^oom_kill (\d+)$/m.exec(read('/proc/vmstat'))?.[1] ?? 0),
};

/** The fields after the name, which may have spaces and parentheses: the first is the state, the 20th the start. */
function startIn(stat: string): number | undefined {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [state = '', start] = [fields[0], fields[19]];
  return start === undefined || 'ZX'.includes(state) ? undefined : Number(start);
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
