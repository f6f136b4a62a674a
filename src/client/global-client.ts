import { type EndpointInfo, GlobalWatchReq, type Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { decodeGlobalOp, type GlobalDataOp } from '../api/global-ops.ts';
import type { ChangeOp } from '../api/ops.ts';
import { servicePath } from '../api/paths.ts';
import {
  ChangeSet,
  DELETED,
  KEPT,
  put,
  StateSize,
  type Staged,
  type StateLimits,
} from '../store/change-set.ts';
import type { GlobalSource, GlobalStore } from '../store/global-store.ts';
import type { GlobalTransaction } from '../store/global-transaction.ts';
import { compareKeys } from '../store/table.ts';
import { Connector, type ConnectorOptions } from './connector.ts';

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
        name: 'global API',
        flag: '--globalv1-api',
        path: '/globalv1.Sets/Watch',
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
    const sets = {
      reset: () => mirror.reset(),
      apply: (op: ChangeOp<GlobalDataOp>) => mirror.apply(op),
      complete: async () => {
        await store.updateInParts((transaction) => mirror.steps(transaction));
        this.#connector.synced();
        return undefined;
      },
    };
    await this.#connector.run({ sets, nodeName: '', once: false }, signal);
  }
}

/**
 * Turns the operations of a global API server into writes to a store: whole change sets, and after a Reset also the
 * removal of entries that are no longer sent.
 */
export class GlobalMirror {
  readonly #services = new Map<string, Service>();
  readonly #nodes = new Map<string, Node>();
  /**
   * Endpoints by their hash, by `namespace|service|source`: several services may name the same source. No source is
   * empty.
   */
  readonly #sources = new Map<string, Map<string, EndpointInfo>>();
  readonly #size: StateSize;
  readonly #stagedServices: ChangeSet<Service>;
  readonly #stagedNodes: ChangeSet<Node>;
  readonly #stagedSources = new Map<string, ChangeSet<EndpointInfo>>();

  constructor(limits?: StateLimits) {
    this.#size = new StateSize(limits);
    this.#stagedServices = new ChangeSet(this.#size);
    this.#stagedNodes = new ChangeSet(this.#size);
  }

  /** Marks every entry stale, and discards the open change set. */
  reset(): void {
    this.#discard();
    this.#size.reset();
  }

  /** Adds an operation to the change set. Throws KPNG_STATE_TOO_LARGE; the change set must then be discarded. */
  apply(op: ChangeOp<GlobalDataOp>): void {
    const target = op.kind === 'invalid' ? op.target : op;
    // Of the type that belongs to the target.
    const value = (op.kind === 'invalid' ? KEPT : (op.value ?? DELETED)) as Staged<never>;
    if (target?.kind === 'service') {
      const key = servicePath(target.ref.namespace, target.ref.name);
      this.#stagedServices.stage(key, value, this.#services.get(key));
    } else if (target?.kind === 'node') {
      this.#stagedNodes.stage(target.ref, value, this.#nodes.get(target.ref));
    } else if (target?.kind === 'endpoint' && target.ref.serviceName !== '') {
      const { namespace, serviceName, sourceName, key } = target.ref;
      const source = `${namespace}|${serviceName}|${sourceName}`;
      let staged = this.#stagedSources.get(source);
      if (staged === undefined) {
        this.#stagedSources.set(source, (staged = new ChangeSet(this.#size, source.length)));
      }
      staged.stage(key, value, this.#sources.get(source)?.get(key));
    }
  }

  /** Writes the complete change set to a store, in steps; no other operation may be applied before the last one. */
  *steps(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const [name, node] of this.#stagedNodes.changes(this.#nodes)) {
      yield;
      put(this.#nodes, name, node);
      transaction.setNode(name, node);
    }
    for (const [key, service] of this.#stagedServices.changes(this.#services)) {
      yield;
      put(this.#services, key, service);
      transaction.setService(key, service);
    }
    for (const [key, staged] of this.#stagedSources) {
      yield;
      this.#writeSource(key, staged, transaction);
    }
    for (const key of this.#size.resyncing ? this.#sources.keys() : []) {
      if (this.#stagedSources.has(key)) continue;
      yield;
      this.#writeSource(key, new ChangeSet(this.#size), transaction);
    }
    this.#discard();
    this.#size.sync();
    transaction.setComplete();
  }

  #writeSource(key: string, staged: ChangeSet<EndpointInfo>, transaction: GlobalTransaction): void {
    const infos = this.#sources.get(key) ?? new Map<string, EndpointInfo>();
    const changes = [...staged.changes(infos)];
    if (changes.length === 0) return;
    for (const [hash, info] of changes) put(infos, hash, info);
    put(this.#sources, key, infos.size === 0 ? undefined : infos);
    // In order of the hash, so that the order in which a server sends does not matter.
    const sorted = [...infos].sort(([a], [b]) => compareKeys(a, b));
    const [namespace = '', serviceName = '', name = ''] = key.split('|');
    // The store changes the messages that it gets.
    const endpoints = Array.from(sorted, ([, { ...info }]) => info);
    transaction.setSource({ namespace, name, serviceName, endpoints });
  }

  #discard(): void {
    this.#stagedServices.clear();
    this.#stagedNodes.clear();
    this.#stagedSources.clear();
  }
}
