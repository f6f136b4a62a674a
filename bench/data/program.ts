/** Programs of others, such as servers and proxies, that end with the benchmark. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { basename } from 'node:path';
import { withChildren } from '../support/process-usage.ts';

/** Characters that are kept of what it says, and of its standard output alone, for what reads that. */
const MAX_TEXT = 16 * 1024;
const MAX_OUTPUT = 1024 * 1024;

/** Starts a program in a session of its own: Linux shares the cores out by session. */
export function startProgram(command: readonly string[]) {
  const [file = '', ...args] = command;
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  let output = '';
  let said = '';
  const keep = (more: string): void => {
    said = (said + more).slice(-MAX_TEXT);
  };
  child.stdout.setEncoding('utf8').on('data', keep);
  child.stdout.on('data', (more: string) => (output = (output + more).slice(-MAX_OUTPUT)));
  child.stderr.setEncoding('utf8').on('data', keep);
  child.on('error', (error) => keep(error.message));
  // Not until its output is closed, which others may hold.
  const gone = once(child, 'exit').catch(() => undefined);
  const killChild = (): boolean => child.kill('SIGKILL');
  process.once('exit', killChild);
  const hasEnded = (): boolean =>
    child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
  /** Throws an Error with what it has said if it has ended. */
  const check = (): void => {
    if (!hasEnded()) return;
    const how = child.signalCode ?? `code ${child.exitCode}`;
    const why = said.trim().slice(-600);
    throw new Error(`${nameOf(command)} has ended with ${how}${why === '' ? '' : `: ${why}`}`);
  };
  return {
    pid: child.pid ?? 0,
    check,
    /** Resolves with its standard output when it has ended well. */
    async ended(): Promise<string> {
      await once(child, 'close').catch(() => undefined);
      process.off('exit', killChild);
      if (child.exitCode !== 0) check();
      return output;
    },
    /** Ends it and what it has started at once. Idempotent. */
    async kill(): Promise<void> {
      process.off('exit', killChild);
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
  const program = startProgram(command);
  const kill = (): void => void program.kill();
  const timer = setTimeout(kill, within);
  signal?.addEventListener('abort', kill);
  try {
    return await program.ended();
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', kill);
  }
}
