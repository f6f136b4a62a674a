import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { delimiter, join } from 'node:path';

/** One check beside the tests: a command that exits 0 when all is well, or a function. */
export type Check =
  | { readonly name: string; readonly command: string; readonly args: readonly string[] }
  | { readonly name: string; readonly run: () => { ok: boolean; text: string } };

export interface CheckResult {
  readonly name: string;
  readonly ok: boolean;
  readonly ms: number;
  /** Everything the command printed, or the function's text. */
  readonly output: string;
}

/** Environment for tools of the project: its own Node and its own tools come first. */
export function toolEnv(root: string): NodeJS.ProcessEnv {
  const bin = join(root, 'node_modules', '.bin');
  return { ...process.env, PATH: `${bin}${delimiter}${process.env['PATH'] ?? ''}` };
}

/** Runs one check to its end. A command that cannot be started is a failed check. */
export async function runCheck(check: Check, root: string): Promise<CheckResult> {
  const start = performance.now();
  const done = (ok: boolean, output: string): CheckResult => ({
    name: check.name,
    ok,
    ms: performance.now() - start,
    output,
  });
  if ('run' in check) {
    const { ok, text } = check.run();
    return done(ok, text);
  }
  const child = spawn(check.command, [...check.args], {
    cwd: root,
    env: toolEnv(root),
    stdio: ['ignore', 'pipe', 'pipe'],
    shell: process.platform === 'win32',
  });
  const output: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => output.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => output.push(chunk));
  const text = (): string => Buffer.concat(output).toString();
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
    if (code === 0) return done(true, text());
    return done(false, `${text()}${check.command} ended with ${signal ?? `code ${code}`}\n`);
  } catch (error) {
    return done(false, `${check.command} could not be started: ${String(error)}\n`);
  }
}

/** Runs the checks, `width` at a time, and reports each as it ends. */
export async function runChecks(
  checks: readonly Check[],
  width: number,
  root: string,
  onResult: (result: CheckResult) => void,
): Promise<void> {
  const queue = [...checks];
  const lane = async (): Promise<void> => {
    for (let check = queue.shift(); check !== undefined; check = queue.shift()) {
      onResult(await runCheck(check, root));
    }
  };
  await Promise.all(Array.from({ length: width }, lane));
}
