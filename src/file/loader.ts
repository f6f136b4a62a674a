import type { DataOp } from '../api/ops.ts';
import type { GlobalState } from '../store/global-state.ts';
import type { LocalState } from '../store/local-state.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import { MAX_TIMER_MS, systemClock, type Clock, type Timer } from '../util/clock.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { Mailbox } from './mailbox.ts';
import { parserError, ParserThread, type Taker } from './parser-thread.ts';
import type { Verdict } from './parser.ts';
import { StateBuilder, type StateChange } from './state-changes.ts';
import { FileStatus, type FileSnapshot } from './status.ts';
import type { WatchDirectory } from './watch-directories.ts';
import { FileWatcher } from './watch.ts';

export interface FileLoaderOptions {
  readonly path: string;
  /** Default: the real one. */
  readonly clock?: Clock;
  /** Default: Math.random. */
  readonly random?: () => number;
  /** Default: DEFAULT_FILE_LIMITS. */
  readonly limits?: FileLimits;
  /** What the thread that parses the file runs. Default: parser-worker.ts. */
  readonly parserModule?: URL;
  /** How to hear of changes. Default: `fs.watch`. */
  readonly watchDirectory?: WatchDirectory;
}

/** Waits before a content is parsed again that ended the parser. It costs much and seldom helps. */
const PARSER_BACKOFF: BackoffPolicy = { initialMs: 1000, maxMs: 300_000, factor: 4, jitter: 0.2 };

/** Follows a state file and hands out each valid state of it. */
export class FileLoader {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #limits: FileLimits;
  readonly #watchDirectory: WatchDirectory | undefined;
  readonly #parserModule: URL | undefined;
  readonly #status: FileStatus;

  constructor(options: FileLoaderOptions) {
    this.#path = options.path;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    this.#limits = options.limits ?? DEFAULT_FILE_LIMITS;
    this.#watchDirectory = options.watchDirectory;
    this.#parserModule = options.parserModule;
    this.#status = new FileStatus(this.#path, this.#clock);
  }

  snapshot(): FileSnapshot {
    return this.#status.snapshot();
  }

  /**
   * Calls back with the state of the file now and after each change, as long as it is valid. What
   * changes while a file is parsed, or the callback is at work, is coalesced: the next one that is
   * parsed is the newest. Resolves when the signal is aborted; keeps the process alive until then.
   */
  async watchCluster(
    onState: (state: GlobalState) => Promise<void> | void,
    signal: AbortSignal,
  ): Promise<void> {
    let state: GlobalState | undefined;
    await this.#watch<StateChange>(undefined, signal, async (hand) => {
      let builder = new StateBuilder(state);
      const taken = await hand({
        begin: (anew) => {
          builder = new StateBuilder(state, anew);
        },
        take: (change) => builder.add(change),
      });
      if (!taken) return;
      state = builder.finish();
      await onState(state);
    });
  }

  /**
   * The same for what one node needs: calls back when there is something to be told, which `bring`
   * applies to a local state, not synced yet. What `bring` does not take is for the next time; it resolves
   * with whether everything was taken, and must not be called again before that. When it was not, the
   * local state must not be synced before the next time that everything is.
   */
  async watchNode(
    nodeName: string,
    onChanged: (bring: (state: LocalState) => Promise<boolean>) => void,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#watch<DataOp>(nodeName, signal, (hand) => {
      onChanged((state) =>
        hand({
          begin: (anew) => {
            if (anew) state.reset();
          },
          take: (operation) => state.apply(operation),
        }),
      );
    });
  }

  async #watch<Step>(
    nodeName: string | undefined,
    signal: AbortSignal,
    onChanged: (hand: (taker: Taker<Step>) => Promise<boolean>) => Promise<void> | void,
  ): Promise<void> {
    if (signal.aborted) return;
    // The timers, watches and threads of a file do not keep the process alive.
    const keepAlive = setInterval(() => undefined, MAX_TIMER_MS);
    const mailbox = new Mailbox<Uint8Array<ArrayBuffer>>();
    const parser = new ParserThread<Step>({ limits: this.#limits, nodeName }, this.#parserModule);
    const stop = (): void => {
      mailbox.close();
      void parser.close();
    };
    signal.addEventListener('abort', stop, { once: true });
    parser.start();
    const watcher = this.#watcher(mailbox);
    const backoff = new Backoff(PARSER_BACKOFF, this.#random);
    let retry: Timer | undefined;
    /** Undefined when the thread has ended; then the file is parsed again later. */
    const attempt = async <T>(work: Promise<T>): Promise<T | undefined> => {
      try {
        return await work;
      } catch (cause) {
        if (signal.aborted) return undefined;
        this.#status.parserEnded(parserError(this.#path, this.#limits, cause));
        retry?.cancel();
        retry = this.#clock.setTimer(backoff.next(), () => watcher.again());
        return undefined;
      }
    };
    const hand = async (taker: Taker<Step>): Promise<boolean> => {
      const taken = await attempt(parser.hand(taker));
      if (taken !== true || signal.aborted) return false;
      backoff.reset();
      return true;
    };
    watcher.start();
    try {
      for (let bytes = await mailbox.take(); bytes !== undefined; bytes = await mailbox.take()) {
        retry?.cancel();
        const startedAt = this.#clock.now();
        const size = bytes.length;
        const verdict = await attempt(parser.parse(bytes));
        if (verdict === undefined) continue;
        this.#tell(verdict, size, startedAt);
        if (verdict.ok && verdict.changed) await onChanged(hand);
        else backoff.reset();
      }
    } finally {
      signal.removeEventListener('abort', stop);
      retry?.cancel();
      watcher.close();
      await parser.close();
      clearInterval(keepAlive);
    }
  }

  #watcher(mailbox: Mailbox<Uint8Array<ArrayBuffer>>): FileWatcher {
    return new FileWatcher({
      path: this.#path,
      limits: this.#limits,
      clock: this.#clock,
      watchDirectory: this.#watchDirectory,
      onContent: (bytes) => {
        this.#status.hasContent();
        mailbox.put(bytes);
      },
      onError: (error) => this.#status.readFailed(error),
      onRecovered: () => this.#status.recovered(),
    });
  }

  #tell(verdict: Verdict, bytes: number, startedAt: number): void {
    if (!verdict.ok) return this.#status.refused(verdict.errors);
    const { services, nodes, parsedItems, warnings, newWarnings } = verdict;
    const durationMs = this.#clock.now() - startedAt;
    this.#status.loaded({
      services,
      nodes,
      parsedItems,
      bytes,
      durationMs,
      warnings,
      newWarnings,
    });
  }
}
