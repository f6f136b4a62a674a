/** Programs that stay, such as servers and proxies, and that end with the benchmark. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { basename } from 'node:path';
import { withChildren } from './usage.ts';

/** Characters of what it says that are kept. */
const MAX_TEXT = 16 * 1024;

export interface Program {
  readonly pid: number;
  /** The last part of what it has said. */
  said(): string;
  /** Throws an Error with what it has said if it has ended. */
  check(): void;
  /** Ends it and what it has started at once. Idempotent. */
  kill(): Promise<void>;
}

/** Starts a program in a session of its own: Linux shares the cores out by session. */
export function startProgram(command: readonly string[]): Program {
  const [file = '', ...args] = command;
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  let text = '';
  const keep = (more: string): void => {
    text = (text + more).slice(-MAX_TEXT);
  };
  child.stdout.setEncoding('utf8').on('data', keep);
  child.stderr.setEncoding('utf8').on('data', keep);
  child.on('error', (error) => keep(error.message));
  // Not until its output is closed, which others may hold.
  const gone = once(child, 'exit').catch(() => undefined);
  const kill = (): boolean => child.kill('SIGKILL');
  process.once('exit', kill);
  const hasEnded = (): boolean =>
    child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
  return {
    pid: child.pid ?? 0,
    said: () => text,
    check() {
      if (!hasEnded()) return;
      const how = child.signalCode ?? `code ${child.exitCode}`;
      const said = text.trim().slice(-600);
      throw new Error(`${nameOf(command)} has ended with ${how}${said === '' ? '' : `: ${said}`}`);
    },
    async kill() {
      process.off('exit', kill);
      if (hasEnded()) return;
      // The first one first, which would start others in their place.
      for (const pid of withChildren(child.pid ?? 0)) killNow(pid);
      await gone;
      child.stdout.destroy();
      child.stderr.destroy();
    },
  };
}

function killNow(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended by itself.
  }
}

/** Program or script, without what puts it into its namespace. */
function nameOf(command: readonly string[]): string {
  const [program = '', script = ''] = command[0] === 'ip' ? command.slice(4) : command;
  return basename(program === process.execPath ? script : program);
}

/**
 * Runs a program to its end and resolves with its standard output. Rejects with what it said when it
 * fails or is ended: after `within` milliseconds, or by the signal.
 */
export async function runProgram(
  command: readonly string[],
  within: number,
  signal?: AbortSignal,
): Promise<string> {
  const [file = '', ...args] = command;
  const child = spawn(file, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    timeout: within,
    killSignal: 'SIGKILL',
  });
  const kill = (): boolean => child.kill('SIGKILL');
  process.once('exit', kill);
  signal?.addEventListener('abort', kill);
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-MAX_TEXT);
  });
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
    if (code === 0) return output;
    const how = signal === null ? `code ${code}` : `${signal} after ${within / 1000} s`;
    const said = `${errors.trim()} ${output.trim()}`.trim().slice(-600);
    throw new Error(`${nameOf(command)} ended with ${how}${said === '' ? '' : `: ${said}`}`);
  } finally {
    process.off('exit', kill);
    signal?.removeEventListener('abort', kill);
  }
}
