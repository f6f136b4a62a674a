import { isDeepStrictEqual } from 'node:util';
import { loadHasher } from '../api/hash.ts';
import { Deliverer, type DelivererOptions } from '../store/deliver.ts';
import { sourceSynced } from '../store/events.ts';
import type { GlobalState } from '../store/global-state.ts';
import { LocalState } from '../store/local-state.ts';
import type { LocalChange, LocalSink, ServiceEntry } from '../store/local-view.ts';
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
   * work newer states replace older ones; a change of the file that changes nothing for the node is
   * not delivered. Resolves when the signal is aborted and the sink is not at work any more.
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
    /** What the sink has got, or will get next. */
    let newest: Entries | undefined;
    let waiting = false;
    const complete = (): LocalChange => {
      waiting = false;
      const change = local.replace(newest?.values() ?? []);
      if (sourceSynced.hasSubscribers) {
        const changed = change.changed.size;
        sourceSynced.publish({ source: `state file ${path}`, services: local.size, changed });
      }
      return change;
    };
    const onState = (state: GlobalState): void => {
      const entries = view.of(state);
      if (newest !== undefined && sameEntries(newest, entries)) return;
      newest = entries;
      // A delivery that waits for the sink takes the newest entries when its turn comes.
      if (!waiting) void deliverer.deliver(complete);
      waiting = true;
    };
    try {
      await this.#loader.watch(onState, signal);
    } finally {
      await deliverer.close();
    }
  }
}

type Entries = ReadonlyMap<string, ServiceEntry>;

function sameEntries(a: Entries, b: Entries): boolean {
  if (a.size !== b.size) return false;
  for (const [key, { service, endpoints }] of a) {
    const other = b.get(key);
    if (other === undefined) return false;
    // Mostly these are the same objects, which costs next to nothing.
    if (!isDeepStrictEqual(service, other.service)) return false;
    if (!isDeepStrictEqual(endpoints, other.endpoints)) return false;
  }
  return true;
}
