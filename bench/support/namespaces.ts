/** Network namespaces of benchmarks and system tests. The machine's own is never touched. */
import { execFileSync } from 'node:child_process';

let groups = 0;

/**
 * Namespaces that are made together and removed together. Their names begin with a prefix and the id of this process, so that a
 * later run can remove what a killed one has left. Methods throw when a program fails, and without the right to make namespaces.
 */
export class Namespaces {
  readonly #id: string;
  readonly #names: string[] = [];
  readonly #onExit = (): void => this.#remove();

  constructor(prefix: string) {
    this.#id = `${prefix}-${process.pid}-${(groups += 1)}`;
    removeStale(prefix);
    process.once('exit', this.#onExit);
  }

  /** Adds one, with its loopback up. */
  add(word: string): void {
    execFileSync('ip', ['netns', 'add', this.name(word)]);
    this.#names.push(this.name(word));
    this.ip(word, ['link set lo up']);
  }

  name(word: string): string {
    return `${this.#id}-${word}`;
  }

  /** The command line that runs a program in one. `ip` becomes the program, so its id is the program's. */
  command(word: string, words: readonly string[]): string[] {
    return ['ip', 'netns', 'exec', this.name(word), ...words];
  }

  /** Runs `ip` commands in one. */
  ip(word: string, commands: readonly string[]): void {
    for (const family of ['-4', '-6']) {
      const own = commands.filter((command) => isV6(command) === (family === '-6'));
      if (own.length === 0) continue;
      const input = `${own.join('\n')}\n`;
      execFileSync('ip', [family, '-n', this.name(word), '-batch', '-'], { input });
    }
  }

  /** Runs a program in one, to its end. */
  run(word: string, words: readonly string[], input = ''): void {
    const [file = '', ...args] = this.command(word, words);
    execFileSync(file, args, { input, stdio: ['pipe', 'ignore', 'pipe'] });
  }

  /** Ends what runs in them, and removes them. Idempotent; done at the latest when this process ends. */
  remove(): void {
    process.off('exit', this.#onExit);
    this.#remove();
  }

  #remove(): void {
    for (const name of this.#names.splice(0).toReversed()) removeNamespace(name);
  }
}

function isV6(command: string): boolean {
  return /[0-9a-f]::|::[0-9a-f]/.test(command);
}

/** Removes namespaces with a prefix whose process has ended. */
export function removeStale(prefix: string): void {
  const list = execFileSync('ip', ['netns', 'list'], { encoding: 'utf8' });
  for (const line of list.split('\n')) {
    if (line.startsWith(`${prefix}-`) && !isInUse(prefix, line)) {
      removeNamespace(line.split(' ')[0] ?? '');
    }
  }
}

/** Whether a namespace belongs to a process that runs, maybe one of another user. */
export function isInUse(prefix: string, namespace: string): boolean {
  const pid = new RegExp(`^${prefix}-(\\d+)-`).exec(namespace)?.[1];
  return pid !== undefined && signal(Number(pid), 0);
}

/** With every process in it: all of them were started by the process that has made it. */
function removeNamespace(name: string): void {
  try {
    const pids = execFileSync('ip', ['netns', 'pids', name], { encoding: 'utf8' });
    for (const pid of pids.split('\n').filter(Boolean)) signal(Number(pid), 'SIGKILL');
    execFileSync('ip', ['netns', 'delete', name], { stdio: 'ignore' });
  } catch {
    // It is gone already.
  }
}

/** False: there is no such process. */
function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, name);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
