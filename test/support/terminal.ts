/** A shell that does one command after another, as someone at a terminal does who reads a page. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isAsShown, type Shown } from './console.ts';
import { until } from '../../examples/support/until.ts';

/** What a command has printed. */
export interface Printed {
  readonly stdout: string;
  readonly stderr: string;
}

/** What the shell itself says when a job was ended by a signal. */
const JOB_ENDED =
  /^(?:bash: line \d+: +\d+|\[\d+\][-+ ]) +(?:Terminated|Killed|Interrupt|Done) .*\n/gm;

export class Terminal {
  readonly #shell: ChildProcess;
  readonly #outputs: string;
  #count = 0;

  /** `inside`: what runs the shell, such as `unshare --net`. */
  constructor(cwd: string, env: NodeJS.ProcessEnv, inside: readonly string[] = []) {
    this.#outputs = join(cwd, '.outputs');
    mkdirSync(this.#outputs);
    const [file, ...args] = [...inside, 'bash', '--noprofile', '--norc', '-s'];
    const stdio = ['pipe', 'ignore', 'ignore'] as const;
    this.#shell = spawn(file ?? 'bash', args, { cwd, env, stdio: [...stdio] });
    // With job control, so that `%1` is what runs, and INT reaches what runs behind. Whatever ends the
    // test, the shell comes to the end of its input, and ends what runs.
    this.#type('set -m');
    this.#type(`trap 'for job in $(jobs -p); do kill -TERM -- -$job; done 2>/dev/null' EXIT`);
  }

  /**
   * Runs a command, and returns when it has ended, or has printed what is shown if it continues. Never
   * rejects: the comparison shows what was printed until then.
   */
  async run(shown: Shown): Promise<Printed> {
    const place = join(this.#outputs, String((this.#count += 1)));
    const goesOn = shown.background || shown.interrupted;
    const command = `${shown.command.trimEnd()}\n`;
    const redirect = `>${place}.out 2>${place}.err </dev/null`;
    if (shown.interrupted) this.#type(`{ ${command}} ${redirect} &`);
    else this.#type(`{ ${command}} ${redirect}`);
    if (!shown.interrupted) this.#type(`echo $? >${place}.code`);
    const look = (): Printed => ({
      stdout: textOf(`${place}.out`),
      stderr: textOf(`${place}.err`).replaceAll(JOB_ENDED, ''),
    });
    const ended = (): boolean => existsSync(`${place}.code`);
    await lookUntil(goesOn ? () => prints(look(), shown, true) : ended);
    if (shown.interrupted) {
      this.#type(`kill -INT -- -$!; wait $! 2>/dev/null; echo $? >${place}.code`);
      await lookUntil(ended);
    }
    return look();
  }

  /** Ends whatever still runs. */
  async close(): Promise<void> {
    const ended = once(this.#shell, 'close');
    this.#shell.stdin?.end();
    // A loop that waits for what does not come does not see the end of the input.
    const timer = setTimeout(() => this.#shell.kill('SIGHUP'), 1000);
    await ended;
    clearTimeout(timer);
  }

  #type(line: string): void {
    this.#shell.stdin?.write(`${line}\n`);
  }
}

/** Whether it has printed what is shown. */
export function prints({ stdout, stderr }: Printed, shown: Shown, begins = false): boolean {
  const text = stdout === '' ? stderr : stdout;
  return isAsShown(text === '' || text.endsWith('\n') ? text : `${text}\n`, shown.output, begins);
}

/** Whether it became true; a loaded machine has its time. */
async function lookUntil(condition: () => boolean): Promise<boolean> {
  const told = until('what the page shows', async () => condition() || undefined, {
    within: 40_000,
  });
  return told.then(
    () => true,
    () => false,
  );
}

function textOf(path: string): string {
  return existsSync(path) ? readFileSync(path, 'utf8') : '';
}
