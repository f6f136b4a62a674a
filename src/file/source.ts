import { loadHasher } from '../api/hash.ts';
import { Deliverer, type DelivererOptions } from '../store/deliver.ts';
import { sourceSynced } from '../store/events.ts';
import type { GlobalState } from '../store/global-state.ts';
import { LocalState } from '../store/local-state.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { NodeView } from '../store/node-view.ts';
import { FileLoader, type FileLoaderOptions, type FileSnapshot } from './loader.ts';

export interface FileSourceOptions extends FileLoaderOptions {
  /** The node whose view sinks get. Empty: no node in particular; then no endpoint is local. */
  readonly nodeName: string;
  /** How to try again when a sink fails. */
  readonly delivery?: Omit<DelivererOptions, 'clock'>;
}

/**
 * State from a YAML file, read again whenever it changes.
 *
 * A file that is missing or has errors changes nothing: the source says so (see events.ts), keeps
 * what it delivered before, and goes on as soon as the file is good. Nothing is delivered before
 * the first valid file.
 */
export class FileSource {
  readonly #options: FileSourceOptions;
  readonly #loader: FileLoader;

  constructor(options: FileSourceOptions) {
    this.#options = options;
    this.#loader = new FileLoader(options);
  }

  /** How things stand with the file. */
  snapshot(): FileSnapshot {
    return this.#loader.snapshot();
  }

  /**
   * Delivers the node's view of the file to a sink, one change set at a time. While the sink is at
   * work newer states replace older ones. Resolves when the signal is aborted and the sink is not
   * at work any more.
   */
  async run(sink: LocalSink, signal: AbortSignal): Promise<void> {
    const { path, nodeName, clock, delivery } = this.#options;
    const hasher = await loadHasher();
    const view = new NodeView(nodeName, (endpoint) => hasher.endpointKey(endpoint));
    const local = new LocalState();
    const deliverer = new Deliverer(sink, {
      ...delivery,
      ...(clock === undefined ? {} : { clock }),
    });
    let newest: GlobalState | undefined;
    const complete = (state: GlobalState): LocalChange => {
      newest = undefined;
      const change = local.replace(view.of(state).values());
      if (sourceSynced.hasSubscribers) {
        const changed = change.changed.size;
        sourceSynced.publish({ source: `state file ${path}`, services: local.size, changed });
      }
      return change;
    };
    const onState = (state: GlobalState): void => {
      const waiting = newest !== undefined;
      newest = state;
      // A delivery that waits for the sink takes the newest state when its turn comes.
      if (!waiting) void deliverer.deliver(() => complete(newest ?? state));
    };
    try {
      await this.#loader.watch(onState, signal);
    } finally {
      await deliverer.close();
    }
  }

  /** Hands out the cluster-wide state instead, for sinks that are not about one node. */
  watchGlobal(onState: (state: GlobalState) => void, signal: AbortSignal): Promise<void> {
    return this.#loader.watch(onState, signal);
  }
}
