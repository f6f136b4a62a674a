import { hostname } from 'node:os';
import { type EndpointInfo, GlobalWatchReq, type Node } from '../api/generated/globalv1/api.ts';
import { type Service, WatchReq } from '../api/generated/localv1/api.ts';
import { quote } from '../api/ops.ts';
import { KpngError } from '../errors.ts';
import { StagedState } from '../store/change-set.ts';
import { delivererTo } from '../store/deliver.ts';
import { sourceSynced } from '../store/events.ts';
import type { GlobalSource, GlobalTransaction } from '../store/global-store.ts';
import { LocalState, type Orphans } from '../store/local-state.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { type ConnectorOptions, reportInvalid, sourceName, watchServer } from './connector.ts';

export interface KpngClientOptions extends ConnectorOptions {
  /** The node whose view to request. Default: the host's name, unchanged. */
  readonly nodeName?: string | undefined;
  /** Whether the sink knows the scope `cluster` of endpoints. Default: no. */
  readonly clusterScope?: boolean | undefined;
  /** End after the first change set, with the sink's error if it fails. Default: false. */
  readonly once?: boolean | undefined;
}

/**
 * Watches the local API of a kpng server and delivers its state to a sink.
 *
 * There is one connection at a time. When it is lost, the last state is still served. The next connection brings the
 * full data, which is compared: entries that are gone are dropped at the first Sync, not before, and only differences
 * are delivered.
 */
export class KpngClient {
  readonly #options: KpngClientOptions;
  readonly #source: string;
  readonly #state: LocalState;
  #running = false;

  constructor(options: KpngClientOptions) {
    this.#options = options;
    this.#source = sourceName('local', options);
    this.#state = new LocalState(options.stateLimits);
  }

  /**
   * Watches until the signal aborts; then resolves once the sink is idle. Rejects only with `once`, when the sink
   * failed. A client runs once at a time.
   */
  async run(sink: LocalSink, signal?: AbortSignal): Promise<void> {
    if (this.#running) throw new Error('The client is running.');
    this.#running = true;
    const { clock, random, onError, nodeName = hostname(), clusterScope, once } = this.#options;
    // Servers that do not know the scope ignore the field.
    const node = { nodeName, clusterScope: clusterScope === true ? true : undefined };
    const request = WatchReq.encode(node).finish();
    const deliverer = delivererTo(sink, { clock, random, onFailed: onError });
    const over = new AbortController();
    const stop = AbortSignal.any(signal ? [signal, over.signal] : [over.signal]);
    let error: KpngError | undefined;
    const complete = async (operations: number): Promise<void> => {
      error = await deliverer.deliver(() => this.#complete(operations));
      if (once) over.abort();
    };
    try {
      await watchServer({ name: 'local', request }, this.#options, this.#state, complete, stop);
    } finally {
      await deliverer.close();
      this.#running = false;
    }
    if (once && error) throw error;
  }

  #complete(operations: number): LocalChange {
    const change = this.#state.sync();
    const source = this.#source;
    for (const each of change.orphans) {
      reportInvalid(source, serviceMissing(each), this.#options.onError);
    }
    const { view, changed } = change;
    sourceSynced.publish({ source, services: view.size, changed: changed.size, operations });
    return change;
  }
}

function serviceMissing({ service, endpoint, count }: Orphans): KpngError {
  const others = count === 1 ? '' : ` and of ${count - 1} more`;
  return new KpngError(
    'KPNG_OP_INVALID',
    `Set of endpoint ${quote(`${service}/${endpoint}`)}${others}: there is no such service; kept until it arrives.`,
  );
}

/**
 * Watches the global API of a kpng server and writes its state to a store.
 *
 * When the connection is lost, the state stays. The next connection brings the full data; missing entries are removed
 * once it is complete, and only differences count as changes.
 */
export function globalClient(options: ConnectorOptions): GlobalSource {
  return {
    name: sourceName('global', options),
    async feed(store, signal) {
      const state = new StagedState(options.stateLimits);
      const request = GlobalWatchReq.encode({}).finish();
      const complete = () => store.updateInParts((transaction) => writeChanges(state, transaction));
      await watchServer({ name: 'global', request }, options, state, complete, signal);
    },
  };
}

/** Writes the complete change set to a store, in steps; no other operation may be applied before the last one. */
export function* writeChanges(
  state: StagedState,
  transaction: GlobalTransaction,
): Generator<void, void, undefined> {
  for (const { name: table, changes, entries } of state.commit()) {
    yield;
    if (table === 'nodes' || table === 'services') {
      for (const [key, value] of changes) {
        if (table === 'nodes') transaction.setNode(key, value as Node | undefined);
        else transaction.setService(key, value as Service | undefined);
        yield;
      }
    } else if (changes.size > 0) {
      const [namespace = '', serviceName = '', name = ''] = table.split('|');
      // The store changes the messages that it gets.
      const endpoints = Array.from(entries.values(), (info) => ({ ...(info as EndpointInfo) }));
      transaction.setSource({ namespace, name, serviceName, endpoints });
    }
  }
  transaction.setComplete();
}
