import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { until } from '../support/until.ts';

/** A program of examples/ that runs, with what it has printed. */
export interface RunningExample {
  readonly child: ChildProcess;
  stdout(): string;
  stderr(): string;
  /** Waits until it has printed something that matches. */
  prints(pattern: RegExp): Promise<void>;
}

/** Starts an example; it is killed when the test ends. */
export function startExample(
  t: { teardown(end: () => unknown): unknown },
  name: string,
  args: readonly string[],
): RunningExample {
  const path = join(import.meta.dirname, '..', '..', 'examples', name);
  const child = spawn(process.execPath, [path, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  t.teardown(() => child.kill('SIGKILL'));
  return {
    child,
    stdout: () => stdout,
    stderr: () => stderr,
    prints: (pattern) => until(() => pattern.test(stdout)),
  };
}
