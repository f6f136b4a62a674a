import { KpngError, messageOf } from '../errors.ts';
import { opInvalid, sourceConnected, sourceDisconnected } from '../store/events.ts';
import type { AnyOp, ChangeOp } from '../api/ops.ts';
import type { StateLimits } from '../store/change-set.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { MAX_TIMER_MS, pause, systemClock, type Clock } from '../util/clock.ts';
import { openStream, type OpStream, type StreamApi, type StreamOptions } from './stream.ts';
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

/** The client's handling of the operations that a server sends. */
export interface ChangeSets<Op> {
  /** The full data set follows: discards the open change set; every entry is stale until the next one is complete. */
  reset(): void;
  /** Adds an operation to the change set. Throws KPNG_STATE_TOO_LARGE. */
  apply(op: ChangeOp<Op>): void;
  /** The change set is complete. Resolves when it was processed, with an error if it was not accepted. */
  complete(): Promise<KpngError | undefined>;
}

interface RunOptions {
  /** The node whose view to request. If empty, the kpng server treats no endpoint as local. */
  readonly nodeName: string;
  /** End after the first change set, with an error if it was not accepted. */
  readonly once?: boolean | undefined;
}

/**
 * Keeps watching one API of a kpng server. There is one connection at a time; when it is lost, it is retried
 * indefinitely, with growing delays, and begins with the full data set.
 */
export class Connector<Op extends AnyOp> {
  readonly source: string;
  readonly #api: StreamApi<Op>;
  readonly #options: ConnectorOptions;
  readonly #clock: Clock;
  readonly #backoff: Backoff;
  #running = false;
  #isFirst = true;
  /** The last connection ended because the server sent too much. */
  #tooLarge = false;
  #tls: TlsMaterial | undefined;
  /** Why the TLS files could not be re-read. */
  #tlsProblem = '';

  constructor(api: StreamApi<Op>, options: ConnectorOptions) {
    this.#api = api;
    this.#options = options;
    this.#tls = options.tls;
    this.source = `${api.name} API at ${options.target.text}`;
    this.#clock = options.clock ?? systemClock;
    this.#backoff = new Backoff(options.backoff ?? DEFAULT_BACKOFF, options.random ?? Math.random);
  }

  /**
   * Watches until the signal aborts. Rejects only with `once`, when the change set was not accepted. Runs once at a
   * time.
   */
  async run(sets: ChangeSets<Op>, options: RunOptions, stop: AbortSignal): Promise<void> {
    if (this.#running) throw new Error('The client is running.');
    this.#running = true;
    // Between attempts nothing else may keep the process alive.
    const alive =
      this.#options.clock === undefined ? setInterval(() => {}, MAX_TIMER_MS) : undefined;
    try {
      while (!stop.aborted) {
        const lost = await this.#connect(sets, options, stop);
        if (lost === undefined) return;
        await this.#wait(lost, stop);
      }
    } finally {
      clearInterval(alive);
      this.#running = false;
    }
  }

  /** Called when a change set has been applied. */
  synced(): void {
    // A server could send one good change set on each connection, and then too much.
    if (!this.#tooLarge) this.#backoff.reset();
  }

  /** Reports an operation that is invalid, or not usable yet, and is skipped. */
  invalid(error: KpngError): void {
    this.#options.onError?.(error);
    opInvalid.publish({ source: this.source, error });
  }

  /** One connection, from connect to loss. Returns why it was lost; undefined: the run is over. */
  async #connect(
    sets: ChangeSets<Op>,
    run: RunOptions,
    stop: AbortSignal,
  ): Promise<KpngError | undefined> {
    if (!this.#isFirst) await this.#renewTls();
    this.#isFirst = false;
    const options = { ...this.#options, tls: this.#tls };
    const stream = await openStream(this.#api, options, this.#clock, () =>
      sourceConnected.publish({ source: this.source }),
    );
    const close = () => stream.close();
    stop.addEventListener('abort', close);
    if (stop.aborted) close();
    let refused: KpngError | undefined;
    try {
      refused = await this.#watch(stream, sets, run);
    } catch (error) {
      if (stop.aborted) return undefined;
      if (!(error instanceof KpngError)) throw error;
      return error;
    } finally {
      stop.removeEventListener('abort', close);
      close();
    }
    if (refused) throw refused;
    return undefined;
  }

  /**
   * Each request yields one change set, and the next request is sent only after that was processed. So the server
   * coalesces changes for a slow sink, at no cost to either side. Resolves only with `once`, with the result of
   * `complete`; otherwise rejects with the stream's error.
   */
  async #watch(
    stream: OpStream<Op>,
    sets: ChangeSets<Op>,
    { nodeName, once }: RunOptions,
  ): Promise<KpngError | undefined> {
    let operations = 0;
    stream.request(nodeName);
    try {
      for await (const op of stream) {
        if (op.kind === 'sync') {
          operations = 0;
          const refused = await sets.complete();
          if (once) return refused;
          stream.request(nodeName);
        } else if (op.kind === 'reset') {
          if (operations > 0) this.invalid(resetWithin(operations));
          operations = 0;
          sets.reset();
        } else {
          operations++;
          if ('error' in op) this.invalid(op.error);
          sets.apply(op as ChangeOp<Op>);
        }
      }
    } finally {
      // The next connection begins with the full data, even if its server sends no Reset.
      sets.reset();
    }
    return undefined;
  }

  async #wait(cause: KpngError, stop: AbortSignal): Promise<void> {
    const { code, message } = cause;
    const reason = `${message}${this.#ownCertificate()}${this.#tlsProblem}`;
    const error = new KpngError(code, `${this.source}: ${reason}`, { cause });
    this.#tooLarge = code === 'KPNG_STATE_TOO_LARGE';
    const retryInMs = this.#backoff.next();
    this.#options.onError?.(error);
    sourceDisconnected.publish({ source: this.source, error, retryInMs });
    await pause(retryInMs, this.#clock, stop);
  }

  /** What else may explain a failure: servers often close the connection without saying why. */
  #ownCertificate(): string {
    const crt = this.#tls?.identity?.crt;
    const why = crt === undefined ? undefined : dateProblem(crt, Date.now());
    return why === undefined ? '' : `; --api-client-tls-crt: ${why}`;
  }

  async #renewTls(): Promise<void> {
    try {
      this.#tls = (await this.#options.renewTls?.()) ?? this.#tls;
      this.#tlsProblem = '';
    } catch (error) {
      this.#tlsProblem = `; the previous TLS files are used: ${messageOf(error)}`;
    }
  }
}

function resetWithin(count: number): KpngError {
  const what = count === 1 ? 'the operation' : `the ${count} operations`;
  return new KpngError(
    'KPNG_OP_INVALID',
    `Reset within a change set: discarded ${what} before it; waiting for the full data set.`,
  );
}
