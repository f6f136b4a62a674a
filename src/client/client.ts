import { hostname } from 'node:os';
import { WatchReq } from '../api/generated/localv1/api.ts';
import { decodeLocalOp, quote, type DataOp } from '../api/ops.ts';
import { KpngError } from '../errors.ts';
import { Deliverer } from '../store/deliver.ts';
import { sourceSynced } from '../store/events.ts';
import { LocalState, type Orphans } from '../store/local-state.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';
import { Connector, type ConnectorOptions } from './connector.ts';

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
  readonly #connector: Connector<DataOp>;
  readonly #state: LocalState;

  constructor(options: KpngClientOptions) {
    this.#options = options;
    this.#state = new LocalState(options.stateLimits);
    // Servers that do not know the scope ignore the field.
    const clusterScope = options.clusterScope === true ? true : undefined;
    this.#connector = new Connector(
      {
        name: 'local',
        encodeRequest: (nodeName) => WatchReq.encode({ nodeName, clusterScope }).finish(),
        decode: decodeLocalOp,
      },
      options,
    );
  }

  /**
   * Watches until the signal aborts; then resolves once the sink is idle. Rejects only with `once`, when the sink
   * failed. A client runs once at a time.
   */
  async run(sink: LocalSink, signal?: AbortSignal): Promise<void> {
    const { clock, random, onError, nodeName, once } = this.#options;
    const deliverer = new Deliverer(sink, { clock, random, onFailed: onError });
    const state = this.#state;
    try {
      await this.#connector.run(
        {
          reset: () => state.reset(),
          apply: (op) => state.apply(op),
          complete: () => deliverer.deliver(() => this.#complete()),
        },
        { nodeName: nodeName ?? hostname(), once },
        signal ?? new AbortController().signal,
      );
    } finally {
      await deliverer.close();
    }
  }

  #complete(): LocalChange {
    const change = this.#state.sync();
    for (const each of change.orphans) this.#connector.invalid(serviceMissing(each));
    this.#connector.synced();
    sourceSynced.publish({
      source: this.#connector.source,
      services: change.view.size,
      changed: change.changed.size,
      operations: change.operations,
    });
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
