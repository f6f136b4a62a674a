import { type EndpointInfo, GlobalWatchReq, type Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { type ChangeOp, decodeGlobalOp, type GlobalDataOp } from '../api/ops.ts';
import { StagedState } from '../store/change-set.ts';
import type { GlobalSource, GlobalStore, GlobalTransaction } from '../store/global-store.ts';
import { type ConnectorOptions, sourceName, watchServer } from './connector.ts';

/**
 * Watches the global API of a kpng server and writes its state to a store.
 *
 * When the connection is lost, the state stays. The next connection brings the full data; missing entries are removed
 * once it is complete, and only differences count as changes.
 */
export class GlobalClient implements GlobalSource {
  readonly name: string;
  readonly #options: ConnectorOptions;

  constructor(options: ConnectorOptions) {
    this.#options = options;
    this.name = sourceName('global', options);
  }

  async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
    const mirror = new GlobalMirror(this.#options.stateLimits);
    const request = GlobalWatchReq.encode({}).finish();
    const api = { name: 'global', request, decode: decodeGlobalOp } as const;
    const complete = () => store.updateInParts((transaction) => mirror.steps(transaction));
    await watchServer(api, this.#options, mirror, complete, signal);
  }
}

/**
 * Turns the operations of a global API server into writes to a store: whole change sets, and after a Reset also the
 * removal of entries that are no longer sent. Its tables are nodes, services, and the endpoints of each
 * `namespace|service|source` by their hash: several services may name the same source.
 */
export class GlobalMirror extends StagedState {
  /** Adds an operation to the change set. Throws as `stage`. */
  apply(op: ChangeOp<GlobalDataOp>): void {
    const target = op.kind === 'invalid' ? op.target : op;
    if (target?.kind === 'service') this.stage('services', target.ref, op);
    else if (target?.kind === 'node') this.stage('nodes', target.ref, op);
    else if (target?.kind === 'endpoint' && target.ref.serviceName !== '') {
      const { namespace, serviceName, sourceName, key } = target.ref;
      this.stage(`${namespace}|${serviceName}|${sourceName}`, key, op);
    }
  }

  /** Writes the complete change set to a store, in steps; no other operation may be applied before the last one. */
  *steps(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const { name: table, changes, entries } of this.sync()) {
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
