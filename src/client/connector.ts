import { KpngError, messageOf } from '../errors.ts';
import { opInvalid, sourceConnected, sourceDisconnected } from '../store/events.ts';
import type { StagedState, StateLimits } from '../store/change-set.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { MAX_TIMER_MS, pause, systemClock, type Clock } from '../util/clock.ts';
import { readOperations, type StreamApi, type StreamOptions } from './stream.ts';
import { dateProblem, type TlsMaterial } from '../util/tls-files.ts';

export interface ConnectorOptions extends StreamOptions {
  /**
   * Reads the TLS files again before each connection but the first, so that they may be replaced at any time. If that
   * fails, the previous ones are used.
   */
  readonly renewTls?: (() => Promise<TlsMaterial | undefined>) | undefined;
  /** Maximum accepted state. Default: `DEFAULT_STATE_LIMITS`. */
  readonly stateLimits?: StateLimits | undefined;
  /** Delays between attempts. Default: 1 s growing to 30 s. */
  readonly backoff?: BackoffPolicy | undefined;
  /** Called for each failure; the client recovers automatically. */
  readonly onError?: ((error: KpngError) => void) | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
}

/** The name of a server in events and errors. */
export function sourceName(api: StreamApi['name'], { target }: StreamOptions): string {
  return `${api} API at ${target.text}`;
}

/**
 * Watches one API of a kpng server until the signal aborts. There is one connection at a time; when it is lost, it is
 * retried indefinitely, with growing delays, and begins with the full data set.
 *
 * Each request yields one change set, and the next request is sent only after `complete` has processed that; it gets the
 * number of operations, with the Sync. So the server coalesces changes for a slow sink, at no cost to either side.
 */
export async function watchServer(
  api: StreamApi,
  options: ConnectorOptions,
  state: StagedState,
  complete: (operations: number) => Promise<unknown>,
  stop: AbortSignal,
): Promise<void> {
  const { clock = systemClock, onError, renewTls, random = Math.random } = options;
  const backoff = new Backoff(options.backoff ?? DEFAULT_BACKOFF, random);
  const source = sourceName(api.name, options);
  let { tls } = options;
  /** Why the TLS files could not be re-read. */
  let tlsProblem = '';
  /** The last connection ended because the server sent too much. */
  let isTooLarge = false;

  /** One connection, from connect to loss: rejects with the reason, or resolves when the signal has aborted. */
  const watchOnce = async (): Promise<void> => {
    const onConnected = (): void => sourceConnected.publish({ source });
    const stream = readOperations(api, { ...options, tls }, clock, stop, onConnected);
    let operations = 0;
    try {
      for await (const op of stream) {
        if (op.kind === 'sync') {
          await complete(operations + 1);
          operations = 0;
          // A server could send one good change set on each connection, and then too much.
          if (!isTooLarge) backoff.reset();
          if (stop.aborted) return;
        } else if (op.kind === 'reset') {
          if (operations > 0) reportInvalid(source, resetWithin(operations), onError);
          operations = 0;
          state.reset();
        } else {
          operations++;
          if (op.kind === 'invalid') reportInvalid(source, op.error, onError);
          state.apply(op);
        }
      }
    } finally {
      // The next connection begins with the full data, even if its server sends no Reset.
      state.reset();
    }
  };

  // Between attempts nothing else may keep the process alive.
  const alive = options.clock === undefined ? setInterval(() => {}, MAX_TIMER_MS) : undefined;
  try {
    while (!stop.aborted) {
      try {
        await watchOnce();
      } catch (cause) {
        if (stop.aborted) return;
        if (!(cause instanceof KpngError)) throw cause;
        const { code, message } = cause;
        const reason = `${message}${certificateHint(tls)}${tlsProblem}`;
        const error = new KpngError(code, `${source}: ${reason}`, { cause });
        isTooLarge = code === 'KPNG_STATE_TOO_LARGE';
        const retryInMs = backoff.next();
        onError?.(error);
        sourceDisconnected.publish({ source, error, retryInMs });
        await pause(retryInMs, clock, stop);
      }
      try {
        tls = (await renewTls?.()) ?? tls;
        tlsProblem = '';
      } catch (error) {
        tlsProblem = `; the previous TLS files are used: ${messageOf(error)}`;
      }
    }
  } finally {
    clearInterval(alive);
  }
}

/** Reports an operation that is invalid, or not usable yet, and is skipped. */
export function reportInvalid(
  source: string,
  error: KpngError,
  onError: ConnectorOptions['onError'],
): void {
  onError?.(error);
  opInvalid.publish({ source, error });
}

/** What else may explain a failure: servers often close the connection without saying why. */
function certificateHint(tls: TlsMaterial | undefined): string {
  const why = tls?.identity && dateProblem(tls.identity.crt, Date.now());
  return why === undefined ? '' : `; --api-client-tls-crt: ${why}`;
}

function resetWithin(count: number): KpngError {
  const what = count === 1 ? 'the operation' : `the ${count} operations`;
  return new KpngError(
    'KPNG_OP_INVALID',
    `Reset within a change set: discarded ${what} before it; waiting for the full data set.`,
  );
}
