import {
  accessSync,
  constants,
  lstatSync,
  mkdirSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { linuxFacts, type ProcessFacts } from './process-facts.ts';

/** A run that dies within this time counts against the engine. Milliseconds. */
export const YOUNG_RUN_MS = 60_000;
/** So many such runs in a row, and the next one does without the engine. As with the deaths of threads. */
const TOO_MANY = 3;
/** Then it is forgotten, so that the engine gets another chance. Milliseconds. */
const MEMORY_MS = 60 * 60_000;
/** Runs that are remembered, as a process that is started again and again writes one each time. */
const MOST_RUNS = 32;

/** A run that has begun and not been seen to last, nor to end: the name of an empty file says all of it. */
interface Run {
  readonly pid: number;
  /** Since processes of another container, or after a while, have the same number. */
  readonly start: number;
  readonly boot: string;
  readonly oomKills: number;
  /** Milliseconds since 1970. */
  readonly at: number;
}

export interface BreakerOptions {
  /** The folder where runs are noted. It is made when there is something to note; the one around it is not. */
  readonly path?: string;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  readonly pid?: number;
  readonly facts?: ProcessFacts;
}

/**
 * Remembers runs that died young, across the deaths of the process: a mistake with system calls can
 * end it without a word, and whatever starts it again would only see it die again.
 *
 * A run notes itself when it begins, and strikes the note out when it has lasted for a minute, when it is
 * asked to end, or when it ends by itself. Notes of processes that are not there any more are deaths,
 * unless the system was started anew since, or has killed processes because memory had run out. Nobody
 * but its parent learns how a process died, so one that was killed without being asked before, as with
 * `kill -9`, is taken for one that crashed.
 *
 * A note is a file of its own, so runs that begin or end at the same time do not lose each other's.
 *
 * Where no note can be written, or nothing is known of processes, there is no memory and no harm. Neither is there one in
 * a folder that others may write to: they could have it look as if the engine died.
 */
export class CrashBreaker {
  readonly #path: string;
  readonly #now: () => number;
  readonly #pid: number;
  readonly #facts: ProcessFacts;

  constructor(options: BreakerOptions = {}) {
    this.#path = options.path ?? defaultPath();
    this.#now = options.now ?? Date.now;
    this.#pid = options.pid ?? process.pid;
    this.#facts = options.facts ?? linuxFacts;
  }

  get path(): string {
    return this.#path;
  }

  /** How many runs in a row died young. */
  deaths(): number {
    const oomKills = this.#facts.oomKills();
    return this.#runs().filter((run) => run.oomKills === oomKills && !this.#isAlive(run)).length;
  }

  /** Whether to do without the engine. */
  isOpen(): boolean {
    return this.deaths() >= TOO_MANY;
  }

  /** This run begins with the engine. */
  begin(): void {
    const start = this.#facts.startOf(this.#pid);
    if (start === undefined) return;
    const [boot, oomKills] = [this.#facts.bootId(), this.#facts.oomKills()];
    this.#tidy();
    this.#add({ pid: this.#pid, start, boot, oomKills, at: this.#now() });
  }

  /** This run has lasted: so it is the end of a row, too. */
  lasted(): void {
    this.#remove(this.#runs().filter((run) => this.#isOwn(run) || !this.#isAlive(run)));
  }

  /** This run ends, or is asked to. It has not shown that the engine lasts. */
  end(): void {
    this.#remove(this.#runs().filter((run) => this.#isOwn(run)));
  }

  #isOwn(run: Run): boolean {
    return run.pid === this.#pid && this.#isAlive(run);
  }

  #isAlive({ pid, start }: Run): boolean {
    return this.#facts.startOf(pid) === start;
  }

  /** Those that count, the oldest first. */
  #runs(): Run[] {
    return this.#notes().filter((run) => this.#counts(run));
  }

  #counts({ at, boot }: Run): boolean {
    return at > this.#now() - MEMORY_MS && boot === this.#facts.bootId();
  }

  /** Makes room for one more. */
  #tidy(): void {
    const notes = this.#notes();
    const counting = notes.filter((run) => this.#counts(run));
    this.#remove(notes.filter((run) => !this.#counts(run)));
    this.#remove(counting.slice(0, Math.max(0, counting.length - MOST_RUNS + 1)));
  }

  #notes(): Run[] {
    try {
      if (!isPrivate(this.#path)) return [];
      return readdirSync(this.#path)
        .map(readNote)
        .filter((run) => run !== undefined)
        .sort((one, other) => one.at - other.at);
    } catch {
      // There are none, or they cannot be read: nothing is remembered.
      return [];
    }
  }

  #add(run: Run): void {
    try {
      mkdirSync(this.#path, { mode: 0o700 });
    } catch {
      // It is there, or writing will fail as well.
    }
    try {
      if (!isPrivate(this.#path)) return;
      writeFileSync(join(this.#path, noteOf(run)), '', { mode: 0o600 });
    } catch {
      // Nothing will be remembered.
    }
  }

  #remove(runs: readonly Run[]): void {
    for (const run of runs) {
      try {
        rmSync(join(this.#path, noteOf(run)), { force: true });
      } catch {
        // It counts until it is old.
      }
    }
  }
}

/** Whether it is a folder, and one that nobody but its owner, this user, may write to. */
function isPrivate(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false });
  const isFolder = found?.isDirectory() === true && (found.mode & 0o022) === 0;
  return isFolder && found.uid === (process.getuid?.() ?? found.uid);
}

function noteOf({ at, pid, start, oomKills, boot }: Run): string {
  return [at, pid, start, oomKills, boot].join('.');
}

/** Undefined for what is no note. */
function readNote(name: string): Run | undefined {
  const [, at, pid, start, oomKills, boot = ''] =
    /^(\d+)\.(\d+)\.(\d+)\.(\d+)\.([\w-]*)$/.exec(name) ?? [];
  if (at === undefined) return undefined;
  return {
    at: Number(at),
    pid: Number(pid),
    start: Number(start),
    oomKills: Number(oomKills),
    boot,
  };
}

/** One for each user: in `/run` where that may be written to, since it is emptied at boot. */
function defaultPath(): string {
  const name = `kpng-userspace-linux-engine.${process.getuid?.() ?? 0}`;
  try {
    accessSync('/run', constants.W_OK);
    return join('/run', name);
  } catch {
    return join(tmpdir(), name);
  }
}
