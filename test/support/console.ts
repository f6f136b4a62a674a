/** The commands that a page shows, with what they print: blocks of `console`, commands after `$ `. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Shown {
  readonly command: string;
  /** What the page says that it prints. `…` stands for anything on a line, alone for any lines. */
  readonly output: string;
}

/** All commands of a page, in order. A command goes on until a line that begins with `$ `. */
export function shownCommands(page: string): Shown[] {
  return [...page.matchAll(/^```console\n(.*?)^```$/gms)].flatMap(([, block = '']) =>
    block
      .split(/^\$ /m)
      .slice(1)
      .map((text) => splitOutput(text)),
  );
}

/** A here-document belongs to its command. */
function splitOutput(text: string): Shown {
  const end = /<<(\w+)\n/.exec(text)?.[1];
  const length =
    end === undefined ? text.indexOf('\n') + 1 : text.indexOf(`\n${end}\n`) + end.length + 2;
  return { command: text.slice(0, length), output: text.slice(length) };
}

/** Whether what was printed is what the page shows. */
export function isAsShown(printed: string, shown: string): boolean {
  const pattern = shown
    .split('\n')
    .map((line) => (line === '…' ? '.*' : line.split('…').map(escape).join('[^\\n]*')))
    .join('\n');
  return new RegExp(`^${pattern}$`, 's').test(printed);
}

function escape(text: string): string {
  return text.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&');
}

/**
 * Runs commands one after another in one bash with job control, as in a terminal, and returns what
 * each has printed on standard output. Whatever still runs at the end is ended.
 */
export async function runShown(
  commands: readonly Shown[],
  { cwd, env }: { cwd: string; env: NodeJS.ProcessEnv },
): Promise<string[]> {
  const outputs = join(cwd, 'outputs');
  mkdirSync(outputs);
  const steps = commands.map(({ command }, n) => `{ ${command}} >${outputs}/${n}\n`);
  const script = join(cwd, 'commands.sh');
  writeFileSync(script, `set -m\n${steps.join('')}kill $(jobs -p) 2>/dev/null\nwait\n`);
  const shell = spawn('bash', [script], { cwd, env, stdio: ['ignore', 'ignore', 'ignore'] });
  await once(shell, 'close');
  return commands.map((_, n) => readFileSync(join(outputs, String(n)), 'utf8'));
}
