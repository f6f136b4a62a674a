import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, open, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock, Timer } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import type { CalloutEnded } from './events.ts';

export interface ProgramRun {
  /** Path, or a name to look for on the PATH. There is no shell and there are no arguments. */
  readonly program: string;
  /** Its standard input, in pieces. */
  readonly input: Iterable<string>;
  /** Time limit before TERM is sent. Milliseconds; 0: none. */
  readonly timeoutMs: number;
  /** Maximum output before it is killed. Bytes. */
  readonly maxOutput: number;
  /** Kills it when aborted. */
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** How a run has ended. */
export interface ProgramEnd {
  readonly result: CalloutEnded['result'];
  /** What went wrong; undefined: it succeeded, or was stopped. */
  readonly problem?: string | undefined;
  readonly cause?: unknown;
  readonly stdout: Buffer;
  /** The end of its standard error. */
  readonly stderr: string;
}

/** Time between TERM and KILL. Milliseconds. */
export const TERM_GRACE_MS = 2000;

/** How much of the end of standard error is kept. Bytes. */
export const STDERR_TAIL = 4096;

/**
 * Runs a program until it has ended and closed its output. At the time limit, its process group is killed; processes
 * that have left the group survive.
 *
 * Rejects only if the input cannot be written.
 */
export async function runProgram(run: ProgramRun): Promise<ProgramEnd> {
  const input = await inputFile(run.input);
  try {
    if (run.signal.aborted) return { result: 'stopped', stdout: EMPTY, stderr: '' };
    return await follow(run, input.fd).catch((cause: NodeJS.ErrnoException) => {
      const why = START_FAILURES[cause.code ?? ''] ?? cause.message;
      const problem = `${run.program} could not be started: ${why}`;
      return { result: 'start', problem, cause, stdout: EMPTY, stderr: '' };
    });
  } finally {
    await input.close();
  }
}

const EMPTY = Buffer.alloc(0);
const START_FAILURES: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such program',
  EACCES: 'it may not be executed',
};

/** Rejects if the program cannot be started. */
async function follow(run: ProgramRun, stdin: number): Promise<ProgramEnd> {
  const { program, timeoutMs, maxOutput, signal, clock } = run;
  const ended = Promise.withResolvers<Pick<ProgramEnd, 'result' | 'problem'>>();
  const stdout: Buffer[] = [];
  let printed = 0;
  let stderr = EMPTY;
  /** Why it is being killed. */
  let killedFor: Pick<ProgramEnd, 'result' | 'problem'> | undefined;
  const child = spawn(program, [], {
    stdio: [stdin, 'pipe', 'pipe'],
    detached: process.platform !== 'win32',
    windowsHide: true,
  });
  child.once('error', ended.reject);

  const timers: Timer[] = [];
  const kill = (): void => {
    signalGroup(child, 'SIGKILL');
    // A process that left the group may hold the output open indefinitely.
    if (child.exitCode !== null || child.signalCode !== null) detach(child);
    else child.once('exit', () => detach(child));
  };
  const killFor = (result: ProgramEnd['result'], problem?: string): void => {
    killedFor ??= { result, problem };
    kill();
  };
  const timeUp = (): void => {
    const limit = formatDuration(timeoutMs);
    const problem = `${program}, or a process that it started, timed out after ${limit}`;
    killedFor ??= { result: 'timeout', problem };
    signalGroup(child, 'SIGTERM');
    timers.push(clock.setTimer(TERM_GRACE_MS, kill));
  };
  if (timeoutMs > 0) timers.push(clock.setTimer(timeoutMs, timeUp));
  const stop = (): void => killFor('stopped');
  signal.addEventListener('abort', stop, { once: true });
  // It has its own process group, so ending this process does not end it.
  process.once('exit', kill);

  child.stdout?.on('data', (piece: Buffer) => {
    printed += piece.length;
    if (printed <= maxOutput) stdout.push(piece);
    else killFor('output', `${program} was killed: it printed more than ${maxOutput} bytes`);
  });
  child.stderr?.on('data', (piece: Buffer) => {
    stderr = Buffer.concat([stderr, piece]).subarray(-STDERR_TAIL - 1);
  });
  child.once('close', (code, by) => {
    if (killedFor !== undefined) ended.resolve(killedFor);
    else if (code === 0) ended.resolve({ result: 'ok' });
    else if (code === null)
      ended.resolve({ result: 'signal', problem: `${program} was killed by ${by}` });
    else ended.resolve({ result: 'exit', problem: `${program} ended with code ${code}` });
  });
  try {
    const end = await ended.promise;
    return { ...end, stdout: Buffer.concat(stdout), stderr: endOf(stderr) };
  } finally {
    for (const timer of timers) timer.cancel();
    signal.removeEventListener('abort', stop);
    process.off('exit', kill);
  }
}

/** The end of a program's output, trimmed; begins with an ellipsis if it was cut. */
function endOf(output: Buffer): string {
  if (output.length <= STDERR_TAIL) return output.toString().trim();
  // The cut may have split a character.
  return `…${output
    .subarray(-STDERR_TAIL)
    .toString()
    .replace(/^\uFFFD+/, '')
    .trim()}`;
}

function detach(child: ChildProcess): void {
  child.stdout?.destroy();
  child.stderr?.destroy();
}

/** Signals the program's process group, unless the program has ended. */
function signalGroup(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): void {
  const { pid } = child;
  if (pid === undefined) return;
  if (process.platform === 'win32') {
    child.kill(signal);
    return;
  }
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') child.kill(signal);
  }
}

/**
 * Writes text to a file without a name, for a program to read as its standard input. It is freed when the handle is
 * closed.
 *
 * Node's own pipes are sockets, and a program cannot open `/dev/stdin` when that is a socket: scripts that do so work
 * with this. A program that does not read cannot block this process either.
 */
async function inputFile(pieces: Iterable<string>): Promise<FileHandle> {
  const folder = await newFolder();
  try {
    const path = join(folder, 'state');
    await writeFile(path, pieces, { flag: 'wx', mode: 0o600 });
    return await open(path);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** In memory if the temporary folder is not writable, as in a read-only container. */
function newFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'kpng-userspace-')).catch((error: unknown) => {
    if (process.platform !== 'linux') throw error;
    return mkdtemp('/dev/shm/kpng-userspace-').catch(() => {
      throw error;
    });
  });
}
