/** The program under attack, started by its command line. */
import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const CLI = join(import.meta.dirname, '../../bin/kpng-userspace.js');

interface ProxyOptions {
  /** What runs it, such as `ip netns exec name`; it has to become the program itself. */
  readonly inside: readonly string[];
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** A file, or `unread`: a pipe without a reader. */
  readonly log: string;
}

export class Proxy {
  readonly #child: ChildProcess;
  readonly #log: string;
  #how: string | undefined;
  /** Resolves with how it ended. */
  readonly ended: Promise<string>;

  constructor({ inside, args, env, log }: ProxyOptions) {
    this.#log = log;
    const file = log === 'unread' ? undefined : openSync(log, 'a');
    const stdio: StdioOptions = ['ignore', 'ignore', file ?? 'pipe'];
    const [program = '', ...rest] = [...inside, process.execPath, CLI, ...args];
    this.#child = spawn(program, rest, { stdio, env: { ...process.env, ...env }, detached: true });
    if (file !== undefined) closeSync(file);
    const kill = (): boolean => this.#child.kill('SIGKILL');
    process.once('exit', kill);
    this.ended = once(this.#child, 'exit').then(([code, signal]) => {
      process.off('exit', kill);
      this.#how = signal === null ? `ended with code ${code}` : `was ended by ${signal}`;
      return this.#how;
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** How it ended; undefined while it runs. */
  get end(): string | undefined {
    return this.#how;
  }

  /** The last lines of its log. */
  log(): string {
    if (this.#log === 'unread' || this.#log.startsWith('/dev/')) return '';
    return readFileSync(this.#log, 'utf8').slice(-2000);
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Ends it with TERM, or with KILL after 8 s. Idempotent. */
  async stop(): Promise<void> {
    if (this.#how !== undefined) return;
    this.signal('SIGTERM');
    const timer = setTimeout(() => this.signal('SIGKILL'), 8000);
    await this.ended;
    clearTimeout(timer);
  }
}
