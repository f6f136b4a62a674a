import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KpngError, messageOf } from '../errors.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import { calloutEnded, type CalloutEnded } from './events.ts';
import { stateJson } from './json.ts';

export interface CalloutOptions {
  /** Path, or a name to look for on the PATH. There is no shell and there are no arguments. */
  readonly program: string;
  /** Time limit before TERM is sent. Milliseconds; 0: none. */
  readonly timeoutMs: number;
  /** Maximum output before it is killed. Bytes. */
  readonly maxOutput: number;
  /** Takes the program's output; resolves when there is room for more. */
  readonly write: (output: Uint8Array) => Promise<void>;
  readonly clock?: Clock;
}

/**
 * Runs a program at every Sync, with the whole state on its standard input in the lines of kpng-json.
 *
 * If it exits with 0, its output is written with a line feed, as kpng-callout does. If not, the change set is
 * rejected (KPNG_CALLOUT_FAILED) and the deliverer retries it.
 */
export class CalloutSink implements LocalSink {
  readonly #options: CalloutOptions;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
  /** Settles when the current run has ended. */
  #program: Promise<Buffer | undefined> = Promise.resolve(undefined);

  constructor(options: CalloutOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /**
   * Kills the program and starts no other: later syncs do nothing. Resolves when it has ended, even if its output
   * could not be written. Idempotent.
   */
  async destroy(): Promise<void> {
    this.#stop.abort();
    await this.#program.catch(() => undefined);
  }

  async sync({ view }: LocalChange): Promise<void> {
    if (this.#stop.signal.aborted) return;
    this.#program = this.#run(stateJson(view));
    const output = await this.#program;
    if (output !== undefined) await this.#options.write(Buffer.concat([output, LINE_FEED]));
  }

  /** Resolves with the output, or undefined if the program was stopped. */
  async #run(state: Iterable<string>): Promise<Buffer | undefined> {
    const { program } = this.#options;
    const started = this.#clock.now();
    const input = await inputFile(state).catch((cause: unknown) => {
      const why = `the state for ${program} could not be written to a temporary file`;
      throw failed(`${why}: ${messageOf(cause)}`, cause);
    });
    const run = follow(this.#options, input.fd, this.#stop.signal, this.#clock);
    const end = await run.catch((cause: NodeJS.ErrnoException): ProgramEnd => {
      const why = START_FAILURES[cause.code ?? ''] ?? cause.message;
      const error = failed(`${program} could not be started: ${why}`, cause);
      return { ...STOPPED, result: 'start', error };
    });
    await input.close();
    const { result, error, stdout, stderr } = end;
    const durationMs = this.#clock.now() - started;
    calloutEnded.publish({ program, result, error, stderr, durationMs });
    if (error !== undefined) throw error;
    return result === 'ok' ? stdout : undefined;
  }
}

const LINE_FEED = Buffer.from('\n');

function failed(message: string, cause?: unknown): KpngError {
  return new KpngError('KPNG_CALLOUT_FAILED', message, { cause });
}

/** How a run has ended. */
interface ProgramEnd {
  readonly result: CalloutEnded['result'];
  readonly error: CalloutEnded['error'];
  readonly stdout: Buffer;
  /** The end of its standard error. */
  readonly stderr: string;
}

/** Time between TERM and KILL. Milliseconds. */
export const TERM_GRACE_MS = 2000;

/** How much of the end of standard error is kept. Bytes. */
export const STDERR_TAIL = 4096;

const STOPPED: ProgramEnd = {
  result: 'stopped',
  error: undefined,
  stdout: Buffer.alloc(0),
  stderr: '',
};
const START_FAILURES: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such program',
  EACCES: 'it may not be executed',
};

/**
 * Runs a program until it has ended and closed its output. At the time limit, its process group is killed; processes
 * that have left the group survive. Rejects if the program cannot be started.
 */
async function follow(
  { program, timeoutMs, maxOutput }: CalloutOptions,
  stdin: number,
  signal: AbortSignal,
  clock: Clock,
): Promise<ProgramEnd> {
  if (signal.aborted) return STOPPED;
  const stdout: Buffer[] = [];
  let printed = 0;
  let stderr = Buffer.alloc(0);
  /** Why it is being killed. */
  let killedFor: Pick<ProgramEnd, 'result' | 'error'> | undefined;
  const child = spawn(program, [], {
    stdio: [stdin, 'pipe', 'pipe'],
    detached: process.platform !== 'win32',
    windowsHide: true,
  });
  const closed = once(child, 'close') as Promise<[number | null, NodeJS.Signals]>;

  let timer: Timer | undefined;
  const kill = (): void => {
    signalGroup(child, 'SIGKILL');
    // A process that left the group may hold the output open indefinitely.
    if (child.exitCode !== null || child.signalCode !== null) detach(child);
    else child.once('exit', () => detach(child));
  };
  const killFor = (result: ProgramEnd['result'], problem?: string): void => {
    killedFor ??= { result, error: problem === undefined ? undefined : failed(problem) };
    kill();
  };
  const timeUp = (): void => {
    const limit = formatDuration(timeoutMs);
    const problem = `${program}, or a process that it started, timed out after ${limit}`;
    killedFor ??= { result: 'timeout', error: failed(problem) };
    signalGroup(child, 'SIGTERM');
    timer = clock.setTimer(TERM_GRACE_MS, kill);
  };
  if (timeoutMs > 0) timer = clock.setTimer(timeoutMs, timeUp);
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
  try {
    const [code, by] = await closed;
    const end = killedFor ?? endWith(program, code, by);
    return { ...end, stdout: Buffer.concat(stdout), stderr: endOf(stderr) };
  } finally {
    timer?.cancel();
    signal.removeEventListener('abort', stop);
    process.off('exit', kill);
  }
}

function endWith(program: string, code: number | null, by: NodeJS.Signals) {
  if (code === 0) return { result: 'ok', error: undefined } as const;
  return code === null
    ? ({ result: 'signal', error: failed(`${program} was killed by ${by}`) } as const)
    : ({ result: 'exit', error: failed(`${program} ended with code ${code}`) } as const);
}

/** The end of a program's output, trimmed; begins with an ellipsis if it was cut. */
function endOf(output: Buffer): string {
  if (output.length <= STDERR_TAIL) return output.toString().trim();
  // The cut may have split a character.
  const end = output.subarray(-STDERR_TAIL).toString();
  return `…${end.replace(/^\uFFFD+/, '').trim()}`;
}

function detach(child: ChildProcess): void {
  child.stdout?.destroy();
  child.stderr?.destroy();
}

/** Signals the program's process group, unless the program has ended. */
function signalGroup(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): void {
  const { pid } = child;
  if (pid === undefined) return;
  try {
    if (process.platform === 'win32') child.kill(signal);
    else process.kill(-pid, signal);
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
