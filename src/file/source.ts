import { KpngError } from '../errors.ts';
import type { GlobalSource } from '../store/global-store.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import { MAX_TIMER_MS, type Timer, systemClock } from '../util/clock.ts';
import { watchFile } from '../util/file-watcher.ts';
import { writeChanges } from './changes.ts';
import { fileInvalid, fileLoaded, fileReadFailed, fileRecovered } from './events.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { startParserThread } from './parser-thread.ts';
import { formatProblems } from './problem.ts';

export interface FileSourceOptions {
  readonly path: string;
  readonly limits?: FileLimits;
  /** The parser thread's module. Default: parser-worker.ts. */
  readonly parserModule?: URL;
}

export const STATE_FILE = {
  name: 'the state file',
  unreadable: 'KPNG_STATE_FILE_READ',
  tooLarge: 'KPNG_STATE_FILE_LIMIT',
} as const;

/** Delays before content that crashed the parser is parsed again: it is expensive, and rarely succeeds. */
const PARSER_BACKOFF: BackoffPolicy = { initialMs: 1000, maxMs: 300_000, factor: 4, jitter: 0.2 };

/** Publishes why the last content is not served. */
interface ContentError {
  readonly message: string;
  readonly publish: () => void;
}

/**
 * State from a YAML or JSON file, re-read whenever it changes.
 *
 * A file that is missing, invalid or over a limit changes nothing: the source reports it (see events.ts), keeps what
 * it delivered, and continues once the file is valid. Nothing is delivered before the first valid file.
 */
export function fileSource({
  path,
  limits = DEFAULT_FILE_LIMITS,
  parserModule,
}: FileSourceOptions): GlobalSource {
  return {
    name: `state file ${path}`,
    /** Keeps the process alive. Changes during parsing are coalesced: the next one is the newest. */
    async feed(store, signal) {
      // The timers, watches and threads of a file do not keep the process alive.
      const keepAlive = setInterval(() => undefined, MAX_TIMER_MS);
      const thread = startParserThread(path, limits, parserModule);
      const backoff = new Backoff(PARSER_BACKOFF, Math.random);
      let contentError: ContentError | undefined;
      let retry: Timer | undefined;
      let newest: Uint8Array<ArrayBuffer> | undefined;
      let wake: (() => void) | undefined;
      signal.addEventListener('abort', () => {
        wake?.();
        void thread.close();
      });
      /** Returns why the content is refused. Rejects with a KpngError if the parser ends before it has answered. */
      const load = async (bytes: Uint8Array<ArrayBuffer>): Promise<ContentError | undefined> => {
        const startedAt = systemClock.now();
        const size = bytes.length;
        const { parts, result } = await thread.parse(bytes);
        if (!result.ok) {
          const { errors } = result;
          const served = store.synced;
          const count = errors.total === 1 ? 'an error' : `${errors.total} errors`;
          const kept = served ? 'the last known state is kept' : 'no state is served yet';
          const message = `the state file has ${count}; ${kept}\n${formatProblems(path, errors)}`;
          const error = new KpngError('KPNG_STATE_FILE_INVALID', message);
          return { message, publish: () => fileInvalid.publish({ path, error, errors, served }) };
        }
        const { services, nodes, parsedItems, newWarnings } = result;
        const durationMs = systemClock.now() - startedAt;
        fileLoaded.publish({
          path,
          services,
          nodes,
          parsedItems,
          bytes: size,
          durationMs,
          newWarnings,
        });
        await store.updateInParts((transaction) => writeChanges(store, transaction, parts, result));
        return undefined;
      };
      const watcher = watchFile({
        path,
        kind: STATE_FILE,
        limits,
        clock: systemClock,
        onContent(bytes) {
          newest = bytes;
          wake?.();
        },
        onError: (error) => fileReadFailed.publish({ path, error }),
        onRecovered: () =>
          contentError === undefined ? fileRecovered.publish({ path }) : contentError.publish(),
      });
      try {
        while (!signal.aborted) {
          const bytes = newest;
          newest = undefined;
          if (bytes === undefined) {
            await new Promise<void>((resolve) => (wake = resolve));
            continue;
          }
          retry?.cancel();
          try {
            contentError = await load(bytes);
            contentError?.publish();
            backoff.reset();
          } catch (error) {
            if (!(error instanceof KpngError)) throw error;
            if (signal.aborted) break;
            const { message } = error;
            const publish = (): void => fileReadFailed.publish({ path, error });
            if (contentError?.message !== message) publish();
            contentError = { message, publish };
            retry = systemClock.setTimer(backoff.next(), () => watcher.again());
          }
        }
      } finally {
        retry?.cancel();
        watcher.close();
        await thread.close();
        clearInterval(keepAlive);
      }
    },
  };
}
