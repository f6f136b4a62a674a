import { hostname } from 'node:os';
import { KpngError } from '../errors.ts';
import { Deliverer } from '../store/deliver.ts';
import { opInvalid, sourceConnected, sourceDisconnected, sourceSynced } from '../store/events.ts';
import { LocalState } from '../store/local-state.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { MAX_TIMER_MS, systemClock, type Clock } from '../util/clock.ts';
import { openStream } from './stream.ts';
import type { Target } from './target.ts';
import type { TlsMaterial } from './tls.ts';
import { watch } from './watch.ts';

/** 4 MiB, the limit of gRPC and of kpng. One message is one service or one endpoint. */
export const DEFAULT_MAX_MESSAGE_SIZE = 4_194_304;

export interface KpngClientOptions {
  /** See `parseTarget`. */
  readonly target: Target;
  /** See `readTls`. Default: no TLS. */
  readonly tls?: TlsMaterial | undefined;
  /** Whose view to ask for. Default: the host's name, as it is. */
  readonly nodeName?: string | undefined;
  /** Bytes. Default: 4194304. */
  readonly maxMessageSize?: number | undefined;
  /** Time limit of a connect. Milliseconds. Default: 20 000, as in Go's gRPC. */
  readonly connectTimeoutMs?: number | undefined;
  /** Waits between connects. Default: 1 s growing to 30 s. */
  readonly backoff?: BackoffPolicy | undefined;
  /** End after the first change set; if the sink does not take it, with its error. Default: false. */
  readonly once?: boolean | undefined;
  /** Called for everything that goes wrong on the way; the client goes on by itself. */
  readonly onError?: ((error: KpngError) => void) | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
}

/** What a client tells when asked. */
export interface KpngClientSnapshot {
  /** The name that its events bear. */
  readonly source: string;
  readonly state: 'stopped' | 'connecting' | 'connected' | 'waiting';
  /** Services of the last complete state. */
  readonly services: number;
  /** Connects after the first. */
  readonly reconnects: number;
  /** Operations skipped because they could not be used. */
  readonly invalidOps: number;
  /** Complete change sets. */
  readonly syncs: number;
  /** When the last of them came: milliseconds since 1970, or undefined when none has. */
  readonly lastSyncAt: number | undefined;
  /** Attempts of the sink that failed since it last took a change set. */
  readonly sinkFailures: number;
  /** Why the last connection ended, while there is none. */
  readonly lostBecause: KpngError | undefined;
}

/**
 * Watches the local API of a kpng server and hands its state to a sink.
 *
 * There is one connection at a time. When it is lost the state stays, is served on, and is compared
 * with the full data that the next connection brings: entries that are gone are dropped at the first
 * Sync, not before, and only what differs is a change.
 */
export class KpngClient {
  readonly #options: KpngClientOptions;
  readonly #source: string;
  readonly #clock: Clock;
  readonly #state = new LocalState();
  readonly #backoff: Backoff;
  #phase: KpngClientSnapshot['state'] = 'stopped';
  #connects = 0;
  #invalidOps = 0;
  #syncs = 0;
  #lastSyncAt: number | undefined;
  #lostBecause: KpngError | undefined;
  #deliverer: Deliverer | undefined;

  constructor(options: KpngClientOptions) {
    this.#options = options;
    this.#source = `local API at ${options.target.text}`;
    this.#clock = options.clock ?? systemClock;
    this.#backoff = new Backoff(options.backoff ?? DEFAULT_BACKOFF, options.random ?? Math.random);
  }

  snapshot(): KpngClientSnapshot {
    return {
      source: this.#source,
      state: this.#phase,
      services: this.#state.size,
      reconnects: Math.max(0, this.#connects - 1),
      invalidOps: this.#invalidOps,
      syncs: this.#syncs,
      lastSyncAt: this.#lastSyncAt,
      sinkFailures: this.#deliverer?.failures ?? 0,
      lostBecause: this.#lostBecause,
    };
  }

  /**
   * Watches until the signal aborts; then it resolves, once the sink has finished what it was doing.
   * Rejects only with `once`, when the sink did not take the change set. A client runs once at a time.
   */
  async run(sink: LocalSink, signal?: AbortSignal): Promise<void> {
    if (this.#phase !== 'stopped') throw new Error('The client is running.');
    const stop = signal ?? new AbortController().signal;
    const { clock, random, onError } = this.#options;
    const deliverer = new Deliverer(sink, { clock: this.#clock, random, onFailed: onError });
    this.#deliverer = deliverer;
    this.#phase = 'connecting';
    // While the client waits to connect again nothing else may keep the process alive.
    const alive = clock === undefined ? setInterval(() => {}, MAX_TIMER_MS) : undefined;
    try {
      while (!stop.aborted && !(await this.#connect(deliverer, stop))) await this.#wait(stop);
    } finally {
      await deliverer.close();
      clearInterval(alive);
      this.#phase = 'stopped';
    }
  }

  /** One connection, from connect to loss. Returns whether that was all. */
  async #connect(deliverer: Deliverer, stop: AbortSignal): Promise<boolean> {
    const { target, tls, nodeName, maxMessageSize, connectTimeoutMs, once } = this.#options;
    this.#phase = 'connecting';
    this.#connects++;
    const stream = await openStream({
      target,
      tls,
      maxMessageSize: maxMessageSize ?? DEFAULT_MAX_MESSAGE_SIZE,
      connectTimeoutMs: connectTimeoutMs ?? 20_000,
      clock: this.#clock,
      onConnected: () => this.#connected(),
    });
    const close = () => stream.close();
    stop.addEventListener('abort', close);
    if (stop.aborted) close();
    let refused: KpngError | undefined;
    try {
      await watch(stream, {
        state: this.#state,
        nodeName: nodeName ?? hostname(),
        once: once ?? false,
        onInvalid: (error) => this.#invalid(error),
        deliver: async (complete) => {
          refused = await deliverer.deliver(() => this.#synced(complete()));
        },
      });
    } catch (error) {
      if (stop.aborted) return true;
      if (!(error instanceof KpngError)) throw error;
      this.#lostBecause = error;
      return false;
    } finally {
      stop.removeEventListener('abort', close);
      close();
    }
    if (refused) throw refused;
    return true;
  }

  async #wait(stop: AbortSignal): Promise<void> {
    const reason = this.#lostBecause?.message ?? '';
    const error = new KpngError('KPNG_SOURCE_LOST', `${this.#source}: ${reason}`, {
      cause: this.#lostBecause,
    });
    const retryInMs = this.#backoff.next();
    this.#lostBecause = error;
    this.#phase = 'waiting';
    this.#options.onError?.(error);
    if (sourceDisconnected.hasSubscribers) {
      sourceDisconnected.publish({ source: this.#source, error, retryInMs });
    }
    if (stop.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const end = (): void => resolve();
    const timer = this.#clock.setTimer(retryInMs, end);
    stop.addEventListener('abort', end);
    await promise;
    stop.removeEventListener('abort', end);
    timer.cancel();
  }

  #connected(): void {
    this.#phase = 'connected';
    this.#lostBecause = undefined;
    if (sourceConnected.hasSubscribers) sourceConnected.publish({ source: this.#source });
  }

  #synced(change: LocalChange): LocalChange {
    this.#syncs++;
    this.#lastSyncAt = Date.now();
    this.#backoff.reset();
    if (sourceSynced.hasSubscribers) {
      const { view, changed } = change;
      const counts = { services: view.size, changed: changed.size };
      sourceSynced.publish({ source: this.#source, ...counts });
    }
    return change;
  }

  #invalid(error: KpngError): void {
    this.#invalidOps++;
    this.#options.onError?.(error);
    if (opInvalid.hasSubscribers) opInvalid.publish({ source: this.#source, error });
  }
}
