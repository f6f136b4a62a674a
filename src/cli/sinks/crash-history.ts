import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Crashes in a row after which the next start avoids the engine. */
const TOO_MANY = 3;
/** Crashes are forgotten after this long, so that the engine gets another chance. Milliseconds. */
const WINDOW_MS = 60 * 60_000;

/** A file that exists while a start probes the engine. */
interface Canary {
  readonly pid: number;
  /** Process start time, since process ids are reused, for example by another container. */
  readonly start: number;
  readonly boot: string;
  readonly oomKills: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly crashes: readonly number[];
}

export interface CrashHistoryOptions {
  /** Identifies this instance of the program among others of the same user. */
  readonly instance: string;
  /** The folder of the files; created when needed. */
  readonly folder?: string;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  readonly pid?: number;
  readonly facts?: ProcessFacts;
}

/**
 * Remembers crashes in the start-up probes of the `linux` engine: a wrong system call can end the process without a
 * message, and a service manager would restart it into the same crash.
 *
 * The canary is a file that exists while an instance probes the engine, about a second. A process that ended with its
 * canary still present crashed in the probes, unless the system was rebooted or the kernel killed processes for lack
 * of memory. Later crashes do not count, because only the parent learns how a process died: neither `kill -9` nor the
 * end of another instance turns the engine off.
 *
 * Nothing is remembered where the file cannot be written, processes cannot be read, or others can write to the
 * directory.
 */
export function crashHistory({
  instance,
  folder = defaultFolder(),
  now = Date.now,
  pid = process.pid,
  facts = linuxFacts,
}: CrashHistoryOptions) {
  const name = createHash('sha256').update(instance).digest('hex').slice(0, 16);
  /** Removing it makes the next start retry the engine. */
  const path = join(folder, `${name}.json`);

  const recent = (): readonly number[] => {
    const canary = isPrivate(folder) ? readCanary(path) : undefined;
    const boot = facts.bootId();
    if (canary?.boot !== boot) return [];
    const isCrash =
      canary.oomKills === facts.oomKills() && facts.startOf(canary.pid) !== canary.start;
    const all = [...canary.crashes, ...(isCrash ? [canary.at] : [])];
    return all.filter((each) => each > now() - WINDOW_MS);
  };
  const crashes = (): number => recent().length;

  return {
    path,
    crashes,
    isOpen: () => crashes() >= TOO_MANY,

    /** Call before the probes. */
    begin(): void {
      const start = facts.startOf(pid);
      if (start === undefined) return;
      const [boot, oomKills] = [facts.bootId(), facts.oomKills()];
      const previous = recent().slice(-TOO_MANY);
      const canary: Canary = { pid, start, boot, oomKills, at: now(), crashes: previous };
      try {
        mkdirSync(folder, { mode: 0o700, recursive: true });
        if (!isPrivate(folder)) return;
        const temporary = `${path}.${pid}`;
        writeFileSync(temporary, JSON.stringify(canary), { mode: 0o600 });
        renameSync(temporary, path);
      } catch {
        // The crash will not be remembered.
      }
    },

    /** Call after the probes. */
    end(): void {
      try {
        rmSync(path, { force: true });
      } catch {
        // The file counts until it is too old.
      }
    },
  };
}

/** Undefined if there is none, or if it is unreadable: then nothing is remembered. */
function readCanary(path: string): Canary | undefined {
  try {
    const found = JSON.parse(read(path)) as Partial<Canary>;
    const { crashes, at } = found;
    return Array.isArray(crashes) && typeof at === 'number' ? (found as Canary) : undefined;
  } catch {
    return undefined;
  }
}

/** Whether it is a folder that only its owner, this user, may write to. */
function isPrivate(path: string): boolean {
  try {
    const found = lstatSync(path);
    const { uid, mode } = found;
    return found.isDirectory() && (mode & 0o022) === 0 && uid === (process.getuid?.() ?? uid);
  } catch {
    return false;
  }
}

/** One per user: in `/run` where writable, since it is emptied at boot. */
function defaultFolder(): string {
  const name = `kpng-userspace-linux-engine.${process.getuid?.() ?? 0}`;
  try {
    accessSync('/run', constants.W_OK);
    return join('/run', name);
  } catch {
    return join(tmpdir(), name);
  }
}

export interface ProcessFacts {
  bootId(): string;
  /**
   * Start time of a process, in ticks since boot; with the process id it identifies a process. Undefined if there is
   * none, or if it is a zombie.
   */
  startOf(pid: number): number | undefined;
  /** Number of processes killed for lack of memory since boot. */
  oomKills(): number;
}

/** From `/proc`. What cannot be read is an empty text, undefined, or 0. */
export const linuxFacts: ProcessFacts = {
  bootId: () => read('/proc/sys/kernel/random/boot_id').trim(),
  startOf: (pid) => startIn(read(`/proc/${pid}/stat`)),
  // Counts kills on the whole machine, including those due to a container's own limit.
  oomKills: () => Number(/^oom_kill (\d+)$/m.exec(read('/proc/vmstat'))?.[1] ?? 0),
};

/**
 * The fields after the name, which may contain spaces and parentheses: the first is the state, the 20th the start
 * time.
 */
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
