import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, open, rm, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock, Timer } from '../util/clock.ts';

export interface ProgramRun {
  /** Path, or a name to look for on the PATH. There is no shell and there are no arguments. */
  readonly program: string;
  /** Its standard input, in pieces. */
  readonly input: Iterable<string>;
  /** Time limit before TERM is sent. Milliseconds; 0: none. */
  readonly timeoutMs: number;
  /** Maximum output before it is killed. Bytes. */
  readonly maxOutput: number;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

export type ProgramEnd =
  | { readonly kind: 'ok'; readonly stdout: Buffer }
  /** It could not be started. */
  | { readonly kind: 'start'; readonly cause: NodeJS.ErrnoException }
  /** It exited with a code other than 0, or was ended by a foreign signal. */
  | { readonly kind: 'exit'; readonly exitCode: number }
  | { readonly kind: 'signal'; readonly signal: string }
  /** It was killed because it took too long, printed too much, or the signal was aborted. */
  | { readonly kind: 'timeout' | 'output' | 'stopped' };

/** With the end of its standard error. */
export type ProgramResult = ProgramEnd & { readonly stderr: string };

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
export async function runProgram(run: ProgramRun): Promise<ProgramResult> {
  const input = await inputFile(run.input);
  try {
    if (run.signal.aborted) return { kind: 'stopped', stderr: '' };
    return await follow(run, input.fd);
  } finally {
    await input.close();
  }
}

async function follow(run: ProgramRun, stdin: number): Promise<ProgramResult> {
  const { promise, resolve } = Promise.withResolvers<ProgramEnd>();
  const stdout: Buffer[] = [];
  let printed = 0;
  const stderr = new Tail();
  let endedFor: 'timeout' | 'output' | 'stopped' | undefined;
  const child = start(run.program, stdin, (cause) => resolve({ kind: 'start', cause }));
  if (child === undefined) return { ...(await promise), stderr: '' };

  const timers: Timer[] = [];
  const kill = (): void => {
    signalGroup(child, 'SIGKILL');
    // A process that left the group may hold the output open indefinitely.
    if (child.exitCode !== null || child.signalCode !== null) detach(child);
    else child.once('exit', () => detach(child));
  };
  const cut = (why: 'output' | 'stopped'): void => {
    endedFor ??= why;
    kill();
  };
  const timeUp = (): void => {
    endedFor ??= 'timeout';
    signalGroup(child, 'SIGTERM');
    timers.push(run.clock.setTimer(TERM_GRACE_MS, kill));
  };
  if (run.timeoutMs > 0) timers.push(run.clock.setTimer(run.timeoutMs, timeUp));
  const stop = (): void => cut('stopped');
  run.signal.addEventListener('abort', stop, { once: true });
  // It has its own process group, so ending this process does not end it.
  process.once('exit', kill);

  child.stdout?.on('data', (piece: Buffer) => {
    printed += piece.length;
    if (printed > run.maxOutput) cut('output');
    else stdout.push(piece);
  });
  child.stderr?.on('data', (piece: Buffer) => stderr.add(piece));
  child.once('close', (exitCode, signal) => {
    if (endedFor !== undefined) resolve({ kind: endedFor });
    else if (exitCode === 0) resolve({ kind: 'ok', stdout: Buffer.concat(stdout) });
    else if (exitCode !== null) resolve({ kind: 'exit', exitCode });
    else resolve({ kind: 'signal', signal: signal ?? 'a signal' });
  });
  const end = await promise;
  for (const timer of timers) timer.cancel();
  run.signal.removeEventListener('abort', stop);
  process.off('exit', kill);
  return { ...end, stderr: stderr.text };
}

/** Keeps the end of a program's output. */
class Tail {
  #bytes = Buffer.alloc(0);
  #printed = 0;

  add(piece: Buffer): void {
    this.#printed += piece.length;
    this.#bytes = Buffer.concat([this.#bytes, piece]).subarray(-STDERR_TAIL);
  }

  /** Trimmed; begins with an ellipsis if it was cut. */
  get text(): string {
    const text = this.#bytes.toString('utf8');
    // The cut may have split a character.
    return this.#printed > STDERR_TAIL ? `…${text.replace(/^\uFFFD+/, '').trim()}` : text.trim();
  }
}

/** Most failures to start are events, and a few are thrown. */
function start(
  program: string,
  stdin: number,
  onFailed: (cause: NodeJS.ErrnoException) => void,
): ChildProcess | undefined {
  try {
    const child = spawn(program, [], {
      stdio: [stdin, 'pipe', 'pipe'],
      detached: process.platform !== 'win32',
      windowsHide: true,
    });
    child.once('error', onFailed);
    return child;
  } catch (cause) {
    onFailed(cause as NodeJS.ErrnoException);
    return undefined;
  }
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
 * Writes text to an unlinked file, for a program to read as its standard input. It is freed when the handle is
 * closed.
 *
 * Node's own pipes are sockets, and a program cannot open `/dev/stdin` when that is a socket: scripts that do so work
 * with this. A program that does not read cannot block this process either.
 */
async function inputFile(pieces: Iterable<string>): Promise<FileHandle> {
  const handle = await unnamedFile();
  try {
    let position = 0;
    for (const piece of pieces) {
      // Writing at a position keeps the program's read offset at the start.
      const bytes = Buffer.from(piece);
      for (let start = 0; start < bytes.length;) {
        const { bytesWritten } = await handle.write(bytes, start, bytes.length - start, position);
        start += bytesWritten;
        position += bytesWritten;
      }
    }
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** In memory if the temporary folder is not writable, as in a read-only container. */
async function unnamedFile(): Promise<FileHandle> {
  try {
    return await unnamedFileIn(tmpdir());
  } catch (error) {
    if (process.platform !== 'linux') throw error;
    return unnamedFileIn('/dev/shm').catch(() => {
      throw error;
    });
  }
}

async function unnamedFileIn(parent: string): Promise<FileHandle> {
  const folder = await mkdtemp(join(parent, 'kpng-userspace-'));
  const opened = open(join(folder, 'state'), 'wx+', 0o600);
  // Remove the folder even if opening fails.
  await Promise.allSettled([opened]);
  try {
    await rm(folder, { recursive: true });
  } catch (error) {
    await opened.then((handle) => handle.close());
    throw error;
  }
  return opened;
}
