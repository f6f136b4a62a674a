import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';

/** A program that runs as a child of this process, and does not outlive it. */
export class ChildProgram {
  readonly child: ChildProcess;
  /** Resolves with how it ended, for any reason. */
  readonly ended: Promise<string>;
  #end: string | undefined;

  /** `stderr`: the descriptor that it logs to, or a pipe. */
  constructor(
    [file = '', ...args]: readonly string[],
    { stderr = 'pipe', env = {} }: { stderr?: number | 'pipe'; env?: NodeJS.ProcessEnv } = {},
  ) {
    this.child = spawn(file, args, {
      stdio: ['ignore', 'ignore', stderr],
      env: { ...process.env, ...env },
      // A group of its own: INT from the terminal is for the program that started it.
      detached: process.platform !== 'win32',
    });
    const kill = (): boolean => this.child.kill('SIGKILL');
    process.once('exit', kill);
    this.ended = once(this.child, 'exit')
      .then(
        ([code, signal]) =>
          signal === null ? `ended with code ${code}` : `was ended by ${signal}`,
        (error: unknown) => `could not be started: ${String(error)}`,
      )
      .then((how) => {
        process.off('exit', kill);
        return (this.#end = how);
      });
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** How it ended; undefined while it runs. */
  get end(): string | undefined {
    return this.#end;
  }

  signal(name: NodeJS.Signals): void {
    this.child.kill(name);
  }

  /** Ends it with TERM, or after 8 s with KILL. Idempotent. */
  async stop(): Promise<string> {
    this.signal('SIGTERM');
    const timer = setTimeout(() => this.signal('SIGKILL'), 8000);
    const how = await this.ended;
    clearTimeout(timer);
    return how;
  }
}
