import { KpngError, messageOf } from '../errors.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { systemClock, type Clock } from '../util/clock.ts';
import { calloutEnded } from './events.ts';
import { stateJson } from './json.ts';
import { runProgram } from './callout-program.ts';

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
    const end = await running.catch((cause: unknown) => {
      const why = `the state for ${program} could not be written to a temporary file`;
      throw failed(`${why}: ${messageOf(cause)}`, cause);
    });
    const { result, problem, cause, stdout, stderr } = end;
    const error = problem === undefined ? undefined : failed(problem, cause);
    const durationMs = clock.now() - started;
    calloutEnded.publish({ program, result, error, stderr, durationMs });
    if (error !== undefined) throw error;
    if (result === 'ok') await write(Buffer.concat([stdout, LINE_FEED]));
  }
}

const LINE_FEED = Buffer.from('\n');

function failed(message: string, cause: unknown): KpngError {
  return new KpngError('KPNG_CALLOUT_FAILED', message, { cause });
}
