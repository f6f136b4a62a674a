import { loadHasher } from '../api/hash.ts';
import type { DelivererOptions } from '../store/deliver.ts';
import type { GlobalSource } from '../store/global-source.ts';
import type { GlobalState } from '../store/global-state.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { feedLocalSink } from '../store/local-feed.ts';
import type { LocalSink } from '../store/local-view.ts';
import { writeState } from './feed.ts';
import { FileLoader, type FileLoaderOptions, type FileSnapshot } from './loader.ts';

export interface FileSourceOptions extends FileLoaderOptions {
  /** The node whose view `run` delivers. Empty, the default: no node in particular, nothing is local. */
  readonly nodeName?: string;
  /** How `run` tries again when a sink fails. */
  readonly delivery?: Omit<DelivererOptions, 'clock'>;
}

/**
 * State from a YAML file, read again whenever it changes.
 *
 * A file that is missing or has errors changes nothing: the source says so (see events.ts), keeps
 * what it delivered before, and goes on as soon as the file is good. Nothing is delivered before
 * the first valid file.
 */
export class FileSource implements GlobalSource {
  readonly name: string;
  readonly #options: FileSourceOptions;
  readonly #loader: FileLoader;

  constructor(options: FileSourceOptions) {
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
    await this.#loader.watch((state) => {
      store.update((transaction) => writeState(transaction, former, state));
      former = state;
    }, signal);
  }

  /** Delivers the view that one node has of the file to a sink, see `feedLocalSink`. */
  async run(sink: LocalSink, signal: AbortSignal): Promise<void> {
    const { nodeName, clock, delivery } = this.#options;
    const hasher = await loadHasher();
    const options = {
      source: this,
      hasher,
      nodeName: nodeName ?? '',
      delivery: { ...delivery, clock },
    };
    await feedLocalSink(options, sink, signal);
  }
}
