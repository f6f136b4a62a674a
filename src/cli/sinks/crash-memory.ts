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

/** So many crashes in a row, and the next start does without the engine. */
const TOO_MANY = 3;
/** Crashes are forgotten after this long, so that the engine gets another chance. Milliseconds. */
const WINDOW_MS = 60 * 60_000;

/** A start that has begun to probe the engine; the file is removed after the probes. */
interface Canary {
  readonly pid: number;
  /** Since processes of another container, or after a while, have the same number. */
  readonly start: number;
  readonly boot: string;
  readonly oomKills: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** When starts before this one have crashed. */
  readonly crashes: readonly number[];
}

export interface CrashMemoryOptions {
  /** Identifies this instance of the program among others of the same user. */
  readonly instance: string;
  /** The folder of the files; created when needed, but not its parent. */
  readonly folder?: string;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  readonly pid?: number;
  readonly facts?: ProcessFacts;
}

/**
 * Remembers that start-up probes of the `linux` engine have crashed the process: a wrong system call can do that
 * without a message, and a service manager would restart it into the same crash.
 *
 * The canary is a file that exists while an instance probes the engine, for a second or so. A process that has
 * ended while its canary is still there has crashed in the probes, unless the system was rebooted since, or the
 * kernel has killed processes for lack of memory. Later crashes do not count, as only the parent learns how a
 * process died: neither `kill -9` nor the end of another instance turns the engine off.
 *
 * Where the file cannot be written, or processes cannot be read, nothing is remembered. The same goes for a
 * directory that others can write to.
 */
export class CrashMemory {
  readonly #options: Required<CrashMemoryOptions>;

  constructor(options: CrashMemoryOptions) {
    this.#options = {
      folder: defaultFolder(),
      now: Date.now,
      pid: process.pid,
      facts: linuxFacts,
      ...options,
    };
  }

  /** The file; removing it makes the next start try the engine again. */
  get path(): string {
    const name = createHash('sha256').update(this.#options.instance).digest('hex').slice(0, 16);
    return join(this.#options.folder, `${name}.json`);
  }

  /** How many starts in a row have crashed. */
  crashes(): number {
    return this.#crashes().length;
  }

  /** Whether to avoid the engine. */
  isOpen(): boolean {
    return this.crashes() >= TOO_MANY;
  }

  /** The probes begin. */
  begin(): void {
    const { folder, now, pid, facts } = this.#options;
    const start = facts.startOf(pid);
    if (start === undefined) return;
    const crashes = this.#crashes().slice(-TOO_MANY);
    const boot = facts.bootId();
    const canary: Canary = { pid, start, boot, oomKills: facts.oomKills(), at: now(), crashes };
    try {
      mkdirSync(folder, { mode: 0o700, recursive: false });
    } catch {
      // It exists, or writing will fail, too.
    }
    try {
      if (!isPrivate(folder)) return;
      const temporary = `${this.path}.${pid}`;
      writeFileSync(temporary, JSON.stringify(canary), { mode: 0o600 });
      renameSync(temporary, this.path);
    } catch {
      // Nothing will be remembered.
    }
  }

  /** The process has outlived the probes. */
  end(): void {
    try {
      rmSync(this.path, { force: true });
    } catch {
      // It counts until it is old.
    }
  }

  #crashes(): readonly number[] {
    const { now, facts } = this.#options;
    const canary = this.#read();
    if (canary === undefined) return [];
    const { pid, start, boot, oomKills, at } = canary;
    const isOurs = boot === facts.bootId() && oomKills === facts.oomKills();
    const isCrash = isOurs && facts.startOf(pid) !== start;
    const all = [...canary.crashes, ...(isCrash ? [at] : [])];
    return boot === facts.bootId() ? all.filter((each) => each > now() - WINDOW_MS) : [];
  }

  #read(): Canary | undefined {
    try {
      if (!isPrivate(this.#options.folder)) return undefined;
      const found = JSON.parse(readFileSync(this.path, 'utf8')) as Partial<Canary>;
      const { crashes, at } = found;
      return Array.isArray(crashes) && typeof at === 'number' ? (found as Canary) : undefined;
    } catch {
      // Missing or unreadable: nothing is remembered.
      return undefined;
    }
  }
}

/** Whether it is a folder that only its owner, this user, may write to. */
function isPrivate(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false });
  const isFolder = found?.isDirectory() === true && (found.mode & 0o022) === 0;
  return isFolder && found.uid === (process.getuid?.() ?? found.uid);
}

/** One for each user: in `/run` where that may be written to, since it is emptied at boot. */
function defaultFolder(): string {
  const name = `kpng-userspace-linux-engine.${process.getuid?.() ?? 0}`;
  try {
    accessSync('/run', constants.W_OK);
    return join('/run', name);
  } catch {
    return join(tmpdir(), name);
  }
}

/** What the system reports about processes, and about the time since it was started. */
export interface ProcessFacts {
  /** Another one after each boot. */
  bootId(): string;
  /**
   * When a process began, in ticks since the boot; with its number that names one process, and no other.
   * Undefined where there is none, or where it has ended and its parent has not reaped it yet.
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
