import { spawn, type ChildProcess } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { once } from 'node:events';

/** Whether a command is on the PATH. */
export function isInstalled(command: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** A program of the system that runs, with its ends; `ended` rejects unless it exits with 0. */
export interface Tool {
  readonly input: NonNullable<ChildProcess['stdin']>;
  readonly output: NonNullable<ChildProcess['stdout']>;
  /** Resolves with its standard error. */
  readonly ended: Promise<string>;
}

/** Starts a program; it is killed after `within` ms. */
export function startTool(command: string, args: readonly string[], within: number): Tool {
  const child = spawn(command, [...args], {
    stdio: 'pipe',
    timeout: within,
    killSignal: 'SIGKILL',
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-16_384);
  });
  // The exit code shows what the program does with its input.
  child.stdin.on('error', () => undefined);
  const end = async (): Promise<string> => {
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
    if (code === 0) return stderr;
    throw new Error(`${command} ended with ${signal ?? `code ${code}`}: ${stderr.trim()}`);
  };
  return { input: child.stdin, output: child.stdout, ended: end() };
}
