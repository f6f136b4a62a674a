import { KpngError, messageOf } from '../errors.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { systemClock, type Clock } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import { calloutEnded } from './events.ts';
import { stateJson } from './json.ts';
import { runProgram, type ProgramResult } from './callout-program.ts';

export interface CalloutOptions {
  /** Path, or a name to look for on the PATH. */
  readonly program: string;
  /** Time limit. Milliseconds; 0: none. */
  readonly timeoutMs: number;
  /** Maximum output. Bytes. */
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
  #program: Promise<unknown> = Promise.resolve();

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
    const { program, timeoutMs, maxOutput, write } = this.#options;
    const { signal } = this.#stop;
    if (signal.aborted) return;
    const clock = this.#clock;
    const started = clock.now();
    const input = stateJson(view);
    const running = runProgram({ program, input, timeoutMs, maxOutput, signal, clock });
    this.#program = running;
    const result = await running.catch((cause: unknown) => {
      const why = `the state for ${program} could not be written to a temporary file`;
      throw failed(`${why}: ${messageOf(cause)}`, cause);
    });
    const error = errorOf(result, this.#options);
    const { kind, stderr } = result;
    const durationMs = clock.now() - started;
    calloutEnded.publish({ program, result: kind, error, stderr, durationMs });
    if (error !== undefined) throw error;
    if (result.kind === 'ok') await write(Buffer.concat([result.stdout, LINE_FEED]));
  }
}

const LINE_FEED = Buffer.from('\n');

function errorOf(
  result: ProgramResult,
  { program, timeoutMs, maxOutput }: CalloutOptions,
): KpngError | undefined {
  if (result.kind === 'ok' || result.kind === 'stopped') return undefined;
  if (result.kind === 'start') {
    const { cause } = result;
    return failed(`${program} could not be started: ${startFailure(cause)}`, cause);
  }
  if (result.kind === 'exit') return failed(`${program} ended with code ${result.exitCode}`);
  if (result.kind === 'signal') return failed(`${program} was killed by ${result.signal}`);
  if (result.kind === 'output') {
    return failed(`${program} was killed: it printed more than ${maxOutput} bytes`);
  }
  const limit = formatDuration(timeoutMs);
  return failed(`${program}, or a process that it started, timed out after ${limit}`);
}

function failed(message: string, cause?: unknown): KpngError {
  return new KpngError('KPNG_CALLOUT_FAILED', message, { cause });
}

function startFailure({ code, message }: NodeJS.ErrnoException): string {
  if (code === 'ENOENT') return 'there is no such program';
  if (code === 'EACCES') return 'it may not be executed';
  return message;
}
