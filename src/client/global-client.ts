import { type EndpointInfo, GlobalWatchReq, type Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { type ChangeOp, decodeGlobalOp, type GlobalDataOp } from '../api/ops.ts';
import { StagedState, type StateLimits } from '../store/change-set.ts';
import type { GlobalSource, GlobalStore, GlobalTransaction } from '../store/global-store.ts';
import { type ChangeSets, Connector, type ConnectorOptions } from './connector.ts';

/**
 * Watches the global API of a kpng server and writes its state to a store.
 *
 * When the connection is lost, the state stays. The next connection brings the full data; missing entries are removed
 * once it is complete, and only differences count as changes.
 */
export class GlobalClient implements GlobalSource {
  readonly name: string;
  readonly #connector: Connector<GlobalDataOp>;
  readonly #limits: StateLimits | undefined;

  constructor(options: ConnectorOptions) {
    this.#connector = new Connector(
      {
        name: 'global',
        encodeRequest: () => GlobalWatchReq.encode({}).finish(),
        decode: decodeGlobalOp,
      },
      options,
    );
    this.#limits = options.stateLimits;
    this.name = this.#connector.source;
  }

  async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
    const mirror = new GlobalMirror(this.#limits);
    const sets: ChangeSets<GlobalDataOp> = {
      reset: () => mirror.reset(),
      apply: (op) => mirror.apply(op),
      complete: async () => {
        await store.updateInParts((transaction) => mirror.steps(transaction));
        this.#connector.synced();
        return undefined;
      },
    };
    await this.#connector.run(sets, { nodeName: '' }, signal);
  }
}

/**
 * Turns the operations of a global API server into writes to a store: whole change sets, and after a Reset also the
 * removal of entries that are no longer sent.
 */
export class GlobalMirror {
  /**
   * Nodes, services, and the endpoints of each `namespace|service|source` by their hash: several services may name the
   * same source.
   */
  readonly #state: StagedState;

  constructor(limits?: StateLimits) {
    this.#state = new StagedState(limits);
  }

  /** See `StagedState.reset`. */
  reset(): void {
    this.#state.reset();
  }

  /** Adds an operation to the change set. Throws as `StagedState.stage`. */
  apply(op: ChangeOp<GlobalDataOp>): void {
    const target = op.kind === 'invalid' ? op.target : op;
    if (target?.kind === 'service') this.#state.stage('services', target.ref, op);
    else if (target?.kind === 'node') this.#state.stage('nodes', target.ref, op);
    else if (target?.kind === 'endpoint' && target.ref.serviceName !== '') {
      const { namespace, serviceName, sourceName, key } = target.ref;
      this.#state.stage(`${namespace}|${serviceName}|${sourceName}`, key, op);
    }
  }

  /** Writes the complete change set to a store, in steps; no other operation may be applied before the last one. */
  *steps(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const { name: table, changes, entries } of this.#state.sync()) {
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
}
