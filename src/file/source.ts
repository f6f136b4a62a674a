import type { GlobalSource, LocalWish } from '../store/global-source.ts';
import type { GlobalState } from '../store/global-state.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { Deliverer } from '../store/deliver.ts';
import { sourceSynced } from '../store/events.ts';
import { LocalState } from '../store/local-state.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { stateSteps } from './feed.ts';
import { FileLoader, type FileLoaderOptions } from './loader.ts';
import type { FileSnapshot } from './status.ts';

/**
 * State from a YAML file, read again whenever it changes.
 *
 * A file that is missing or has errors changes nothing: the source says so (see events.ts), keeps
 * what it delivered before, and goes on as soon as the file is good. Nothing is delivered before
 * the first valid file.
 */
export class FileSource implements GlobalSource {
  readonly name: string;
  readonly #options: FileLoaderOptions;
  readonly #loader: FileLoader;

  constructor(options: FileLoaderOptions) {
    this.name = `state file ${options.path}`;
    this.#options = options;
    this.#loader = new FileLoader(options);
  }

  /** How things stand with the file. */
  snapshot(): FileSnapshot {
    return this.#loader.snapshot();
  }

  /** Writes each valid state of the file to the store, until the signal is aborted. */
  async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
    let former: GlobalState | undefined;
    await this.#loader.watchCluster(async (state) => {
      await store.updateInTurns((transaction) => stateSteps(transaction, former, state));
      former = state;
    }, signal);
  }

  /** The view of the node is worked out where the file is parsed: in a thread of its own. */
  async feedLocal(
    { nodeName, delivery }: LocalWish,
    sink: LocalSink,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock } = this.#options;
    const deliverer = new Deliverer(sink, { clock, ...delivery });
    const state = new LocalState();
    let waiting = false;
    const complete = async (
      bring: (state: LocalState) => Promise<boolean>,
    ): Promise<LocalChange | undefined> => {
      waiting = false;
      if (!(await bring(state))) return undefined;
      const change = state.sync();
      if (sourceSynced.hasSubscribers) {
        const counts = {
          services: state.size,
          changed: change.changed.size,
          operations: state.takeOperations(),
        };
        sourceSynced.publish({ source: this.name, ...counts });
      }
      return change;
    };
    const onChanged = (bring: (state: LocalState) => Promise<boolean>): void => {
      // A delivery that waits for the sink takes the newest state when its turn comes.
      if (!waiting) void deliverer.deliver(async () => complete(bring));
      waiting = true;
    };
    try {
      await this.#loader.watchNode(nodeName, onChanged, signal);
    } finally {
      await deliverer.close();
    }
  }
}
