import { accessSync, constants, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A run that ends by itself within this time counts against the engine. Milliseconds. */
export const YOUNG_RUN_MS = 60_000;
/** So many such runs in a row, and the next one does without the engine. */
const TOO_MANY = 2;
/** Then it is forgotten, so that the engine gets another chance. Milliseconds. */
const MEMORY_MS = 60 * 60_000;

/** A run that has begun and not been seen to last. */
interface Run {
  readonly pid: number;
  /** Milliseconds since 1970. */
  readonly at: number;
}

export interface BreakerOptions {
  /** Where runs are noted. */
  readonly path?: string;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  readonly pid?: number;
  /** Whether a process is there. */
  readonly isAlive?: (pid: number) => boolean;
}

/**
 * Remembers runs that died young, across the deaths of the process: a mistake with system calls can
 * end it without a word, and whatever starts it again would only see it die again.
 *
 * A run notes itself when it begins, and strikes the note out when it has lasted for a minute or ends
 * as it should. Notes of processes that are not there any more are deaths. Where no note can be
 * written, there is no memory and no harm.
 */
export class CrashBreaker {
  readonly #path: string;
  readonly #now: () => number;
  readonly #pid: number;
  readonly #isAlive: (pid: number) => boolean;

  constructor(options: BreakerOptions = {}) {
    this.#path = options.path ?? defaultPath();
    this.#now = options.now ?? Date.now;
    this.#pid = options.pid ?? process.pid;
    this.#isAlive = options.isAlive ?? isAlive;
  }

  get path(): string {
    return this.#path;
  }

  /** How many runs in a row died young. */
  deaths(): number {
    return this.#runs().filter(({ pid }) => pid !== this.#pid && !this.#isAlive(pid)).length;
  }

  /** Whether to do without the engine. */
  isOpen(): boolean {
    return this.deaths() >= TOO_MANY;
  }

  /** This run begins with the engine. */
  begin(): void {
    this.#write([...this.#others(), { pid: this.#pid, at: this.#now() }]);
  }

  /** This run has lasted: so it is the end of a row, too. */
  lasted(): void {
    this.#write(this.#others().filter(({ pid }) => this.#isAlive(pid)));
  }

  /** This run ends as it should. It has not shown that the engine lasts. */
  end(): void {
    this.#write(this.#others());
  }

  #others(): Run[] {
    return this.#runs().filter(({ pid }) => pid !== this.#pid);
  }

  #runs(): Run[] {
    try {
      const runs: unknown = JSON.parse(readFileSync(this.#path, 'utf8'));
      const from = this.#now() - MEMORY_MS;
      return Array.isArray(runs) ? runs.filter(isRun).filter(({ at }) => at > from) : [];
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
      writeFileSync(draft, JSON.stringify(runs), { mode: 0o600 });
      renameSync(draft, this.#path);
    } catch {
      // Nothing will be remembered.
      rmSync(draft, { force: true });
    }
  }
}

function isRun(value: unknown): value is Run {
  const run = value as Partial<Run> | null;
  return typeof run?.pid === 'number' && typeof run.at === 'number';
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
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
