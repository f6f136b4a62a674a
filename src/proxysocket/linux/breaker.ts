import { accessSync, constants, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
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

/** A run that has begun and not been seen to last, nor to end. */
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
  /** Where runs are noted. */
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
 * Where no note can be written, or nothing is known of processes, there is no memory and no harm.
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
    this.#write([...this.#others(), { pid: this.#pid, start, boot, oomKills, at: this.#now() }]);
  }

  /** This run has lasted: so it is the end of a row, too. */
  lasted(): void {
    this.#write(this.#others().filter((run) => this.#isAlive(run)));
  }

  /** This run ends, or is asked to. It has not shown that the engine lasts. */
  end(): void {
    this.#write(this.#others());
  }

  #others(): Run[] {
    const start = this.#facts.startOf(this.#pid);
    return this.#runs().filter((run) => run.pid !== this.#pid || run.start !== start);
  }

  #isAlive({ pid, start }: Run): boolean {
    return this.#facts.startOf(pid) === start;
  }

  #runs(): Run[] {
    try {
      const runs: unknown = JSON.parse(readFileSync(this.#path, 'utf8'));
      const from = this.#now() - MEMORY_MS;
      const boot = this.#facts.bootId();
      if (!Array.isArray(runs)) return [];
      return runs.filter(isRun).filter((run) => run.at > from && run.boot === boot);
    } catch {
      // There is none, or it cannot be read: nothing is remembered.
      return [];
    }
  }

  #write(runs: readonly Run[]): void {
    const draft = `${this.#path}.${this.#pid}`;
    try {
      if (runs.length === 0) {
        rmSync(this.#path, { force: true });
        return;
      }
      writeFileSync(draft, JSON.stringify(runs.slice(-MOST_RUNS)), { mode: 0o600 });
      renameSync(draft, this.#path);
    } catch {
      // Nothing will be remembered.
      rmSync(draft, { force: true });
    }
  }
}

function isRun(value: unknown): value is Run {
  const { pid, start, oomKills, at, boot } = (value ?? {}) as Partial<Run>;
  return [pid, start, oomKills, at].every(Number.isInteger) && typeof boot === 'string';
}

/** One for each user: in `/run` where that may be written to, since it is emptied at boot. */
function defaultPath(): string {
  const name = `kpng-userspace-linux-engine.${process.getuid?.() ?? 0}.json`;
  try {
    accessSync('/run', constants.W_OK);
    return join('/run', name);
  } catch {
    return join(tmpdir(), name);
  }
}
