import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import type { GlobalDataOp, InvalidGlobalOp } from '../api/global-ops.ts';
import type { GlobalEndpointRef, ServiceRef } from '../api/paths.ts';
import type { GlobalTransaction } from '../store/global-transaction.ts';
import { compareKeys } from '../store/table.ts';

/** What a change set does to one entry. */
type Staged<T> = T | typeof DELETED | typeof KEPT;
const DELETED = Symbol('deleted');
/** The server sent the entry, but not in a form that can be used: the old value stays. */
const KEPT = Symbol('kept');

/** The endpoints of one source, by their hash. */
type Infos = ReadonlyMap<string, EndpointInfo>;

/** Several services may name the same source, so that one source here is a service's part of it. */
interface Source {
  readonly ref: Omit<GlobalEndpointRef, 'key'>;
  readonly infos: Infos;
}

interface StagedSource {
  readonly ref: Omit<GlobalEndpointRef, 'key'>;
  readonly infos: Map<string, Staged<EndpointInfo>>;
}

/**
 * What a server of the global API has said, so that its operations can be written to a store: change
 * sets whole, and after a Reset also the removal of what it does not mention any more.
 */
export class GlobalMirror {
  readonly #services = new Map<string, ServiceRef>();
  readonly #nodes = new Set<string>();
  readonly #sources = new Map<string, Source>();
  readonly #stagedServices = new Map<string, { ref: ServiceRef; value: Staged<Service> }>();
  readonly #stagedNodes = new Map<string, Staged<Node>>();
  readonly #stagedSources = new Map<string, StagedSource>();
  #suspect = false;

  /** Makes every entry suspect, and forgets the change set begun. */
  reset(): void {
    this.#forgetStaged();
    this.#suspect = true;
  }

  /** Takes an operation into the change set. */
  apply(op: GlobalDataOp | InvalidGlobalOp): void {
    switch (op.kind) {
      case 'service':
        this.#stageService(op.ref, op.value ?? DELETED);
        break;
      case 'endpoint':
        this.#stageSource(op.ref).infos.set(op.ref.key, op.value ?? DELETED);
        break;
      case 'node':
        this.#stagedNodes.set(op.ref, op.value ?? DELETED);
        break;
      case 'invalid':
        this.#keep(op);
    }
  }

  /** Writes the complete change set to a store, in steps; nothing may be applied before the last one. */
  *steps(transaction: GlobalTransaction): Generator<void, void, undefined> {
    yield* this.#writeNodes(transaction);
    yield* this.#writeServices(transaction);
    yield* this.#writeSources(transaction);
    this.#forgetStaged();
    this.#suspect = false;
    transaction.setComplete();
  }

  #forgetStaged(): void {
    this.#stagedServices.clear();
    this.#stagedNodes.clear();
    this.#stagedSources.clear();
  }

  #keep({ target }: InvalidGlobalOp): void {
    switch (target?.kind) {
      case 'service':
        this.#stageService(target.service, KEPT, true);
        break;
      case 'endpoint': {
        const { infos } = this.#stageSource(target.endpoint);
        if (!infos.has(target.endpoint.key)) infos.set(target.endpoint.key, KEPT);
        break;
      }
      case 'node':
        if (!this.#stagedNodes.has(target.node)) this.#stagedNodes.set(target.node, KEPT);
        break;
      case undefined:
    }
  }

  #stageService(ref: ServiceRef, value: Staged<Service>, unlessStaged = false): void {
    const key = `${ref.namespace}/${ref.name}`;
    if (unlessStaged && this.#stagedServices.has(key)) return;
    this.#stagedServices.set(key, { ref, value });
  }

  #stageSource(ref: GlobalEndpointRef): StagedSource {
    const key = `${ref.namespace}|${ref.serviceName}|${ref.sourceName}`;
    let staged = this.#stagedSources.get(key);
    if (staged === undefined) this.#stagedSources.set(key, (staged = { ref, infos: new Map() }));
    return staged;
  }

  *#writeServices(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const [key, { ref, value }] of this.#stagedServices) {
      yield;
      if (value === KEPT) continue;
      if (value === DELETED) {
        this.#services.delete(key);
        transaction.deleteService(ref.namespace, ref.name);
      } else {
        this.#services.set(key, ref);
        transaction.setService(value);
      }
    }
    if (!this.#suspect) return;
    for (const [key, { namespace, name }] of this.#services) {
      if (this.#stagedServices.has(key)) continue;
      this.#services.delete(key);
      transaction.deleteService(namespace, name);
    }
  }

  *#writeNodes(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const [name, value] of this.#stagedNodes) {
      yield;
      if (value === KEPT) continue;
      if (value === DELETED) {
        this.#nodes.delete(name);
        transaction.deleteNode(name);
      } else {
        this.#nodes.add(name);
        transaction.setNode(value);
      }
    }
    if (!this.#suspect) return;
    for (const name of this.#nodes) {
      if (this.#stagedNodes.has(name)) continue;
      this.#nodes.delete(name);
      transaction.deleteNode(name);
    }
  }

  *#writeSources(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const [key, staged] of this.#stagedSources) {
      yield;
      const infos = settle(this.#sources.get(key)?.infos, staged.infos, this.#suspect);
      this.#setSource(key, { ref: staged.ref, infos }, transaction);
    }
    if (!this.#suspect) return;
    for (const [key, { ref }] of this.#sources) {
      if (!this.#stagedSources.has(key))
        this.#setSource(key, { ref, infos: new Map() }, transaction);
    }
  }

  #setSource(key: string, source: Source, transaction: GlobalTransaction): void {
    const { ref, infos } = source;
    if (infos.size === 0) this.#sources.delete(key);
    else this.#sources.set(key, source);
    const { namespace, serviceName, sourceName } = ref;
    transaction.setSource({
      namespace,
      name: `${serviceName}|${sourceName}`,
      serviceName,
      endpoints: [...infos.values()],
    });
  }
}

/** In order of the hash, so that the order in which a server tells does not matter. */
function settle(
  former: Infos | undefined,
  staged: ReadonlyMap<string, Staged<EndpointInfo>>,
  suspect: boolean,
): Infos {
  const infos = new Map(suspect ? [] : former);
  for (const [key, value] of staged) {
    const info = value === KEPT ? former?.get(key) : value;
    if (info === undefined || info === DELETED) infos.delete(key);
    else infos.set(key, info);
  }
  return new Map([...infos].sort(([a], [b]) => compareKeys(a, b)));
}
