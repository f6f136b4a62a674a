/** The program under attack, started by its command line. */
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ChildProgram } from '../../examples/support/child-program.ts';

const CLI = join(import.meta.dirname, '../../bin/kpng-userspace.js');

interface ProxyOptions {
  /** What runs it, such as `ip netns exec name`; it has to become the program itself. */
  readonly inside: readonly string[];
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** A file, or `unread`: a pipe without a reader. */
  readonly log: string;
}

export class Proxy extends ChildProgram {
  readonly #log: string;

  constructor({ inside, args, env, log }: ProxyOptions) {
    const stderr = log === 'unread' ? 'pipe' : openSync(log, 'a');
    super([...inside, process.execPath, CLI, ...args], { stderr, env });
    if (stderr !== 'pipe') closeSync(stderr);
    this.#log = log;
  }

  /** The last lines of its log. */
  log(): string {
    if (this.#log === 'unread' || this.#log.startsWith('/dev/')) return '';
    return readFileSync(this.#log, 'utf8').slice(-2000);
  }
}
