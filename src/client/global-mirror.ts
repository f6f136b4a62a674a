import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import type { GlobalDataOp, InvalidGlobalOp } from '../api/global-ops.ts';
import { servicePath, type GlobalEndpointRef, type ServiceRef } from '../api/paths.ts';
import type { GlobalTransaction } from '../store/global-transaction.ts';
import { DELETED, KEPT, StateSize, type Staged, type StateLimits } from '../store/staged.ts';
import { compareKeys } from '../store/table.ts';

/** The endpoints of one source, by their hash. */
type Infos = ReadonlyMap<string, EndpointInfo>;

/** A service's part of a source: several services may name the same source. */
interface Source {
  readonly ref: Omit<GlobalEndpointRef, 'key'>;
  readonly infos: Infos;
}

interface StagedSource {
  readonly ref: Omit<GlobalEndpointRef, 'key'>;
  readonly infos: Map<string, Staged<EndpointInfo>>;
}

/**
 * Turns the operations of a global API server into writes to a store: whole change sets, and after a Reset also the
 * removal of entries that are no longer sent.
 */
export class GlobalMirror {
  readonly #services = new Map<string, Service>();
  readonly #nodes = new Map<string, Node>();
  readonly #sources = new Map<string, Source>();
  readonly #stagedServices = new Map<string, Staged<Service>>();
  readonly #stagedNodes = new Map<string, Staged<Node>>();
  readonly #stagedSources = new Map<string, StagedSource>();
  readonly #size: StateSize;
  #resyncing = false;

  constructor(limits: StateLimits) {
    this.#size = new StateSize(limits);
  }

  /** Marks every entry stale, and discards the open change set. */
  reset(): void {
    this.#forgetStaged();
    this.#size.reset();
    this.#resyncing = true;
  }

  /** Adds an operation to the change set. Throws KPNG_STATE_TOO_LARGE; the change set must then be discarded. */
  apply(op: GlobalDataOp | InvalidGlobalOp): void {
    switch (op.kind) {
      case 'service':
        this.#stageService(op.ref, op.value ?? DELETED);
        break;
      case 'endpoint':
        this.#stageEndpoint(op.ref, op.value ?? DELETED);
        break;
      case 'node':
        this.#stageNode(op.ref, op.value ?? DELETED);
        break;
      case 'invalid':
        if (op.target?.kind === 'service') this.#stageService(op.target.ref, KEPT);
        if (op.target?.kind === 'endpoint') this.#stageEndpoint(op.target.ref, KEPT);
        if (op.target?.kind === 'node') this.#stageNode(op.target.ref, KEPT);
    }
  }

  /** Writes the complete change set to a store, in steps; no other operation may be applied before the last one. */
  *steps(transaction: GlobalTransaction): Generator<void, void, undefined> {
    yield* this.#writeNodes(transaction);
    yield* this.#writeServices(transaction);
    yield* this.#writeSources(transaction);
    this.#forgetStaged();
    this.#size.sync();
    this.#resyncing = false;
    transaction.setComplete();
  }

  #forgetStaged(): void {
    this.#stagedServices.clear();
    this.#stagedNodes.clear();
    this.#stagedSources.clear();
  }

  #stageService({ namespace, name }: ServiceRef, value: Staged<Service>): void {
    const key = servicePath(namespace, name);
    this.#stage(this.#stagedServices, key, key.length, this.#services.get(key), value);
  }

  #stageNode(name: string, value: Staged<Node>): void {
    this.#stage(this.#stagedNodes, name, name.length, this.#nodes.get(name), value);
  }

  #stageEndpoint(ref: GlobalEndpointRef, value: Staged<EndpointInfo>): void {
    const { key, staged } = this.#stageSource(ref);
    const before = this.#sources.get(key)?.infos.get(ref.key);
    this.#stage(staged.infos, ref.key, key.length + ref.key.length, before, value);
  }

  /** An invalid operation removes nothing, neither from the state nor from the change set. */
  #stage<T extends object>(
    staged: Map<string, Staged<T>>,
    key: string,
    pathLength: number,
    before: T | undefined,
    value: Staged<T>,
  ): void {
    const previous = staged.get(key);
    if (value === KEPT && previous !== undefined) return;
    staged.set(key, value);
    this.#size.stage({ pathLength, before, previous, value });
  }

  #stageSource(ref: GlobalEndpointRef): { key: string; staged: StagedSource } {
    const key = `${ref.namespace}|${ref.serviceName}|${ref.sourceName}`;
    let staged = this.#stagedSources.get(key);
    if (staged === undefined) this.#stagedSources.set(key, (staged = { ref, infos: new Map() }));
    return { key, staged };
  }

  *#writeServices(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const [key, value] of this.#settled(this.#services, this.#stagedServices)) {
      yield;
      if (value !== undefined) transaction.setService(value);
      else transaction.deleteService(key);
    }
  }

  *#writeNodes(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const [name, value] of this.#settled(this.#nodes, this.#stagedNodes)) {
      yield;
      if (value !== undefined) transaction.setNode(value);
      else transaction.deleteNode(name);
    }
  }

  /** The changed entries; undefined: removed. */
  *#settled<T extends object>(
    known: Map<string, T>,
    staged: ReadonlyMap<string, Staged<T>>,
  ): Generator<readonly [string, T | undefined], void, undefined> {
    for (const [key, value] of staged) {
      if (value === KEPT) continue;
      if (value === DELETED) known.delete(key);
      else known.set(key, value);
      yield [key, value === DELETED ? undefined : value];
    }
    if (!this.#resyncing) return;
    for (const key of known.keys()) {
      if (staged.has(key)) continue;
      known.delete(key);
      yield [key, undefined];
    }
  }

  *#writeSources(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const [key, staged] of this.#stagedSources) {
      yield;
      const infos = settle(this.#sources.get(key)?.infos, staged.infos, this.#resyncing);
      this.#setSource(key, { ref: staged.ref, infos }, transaction);
    }
    if (!this.#resyncing) return;
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
    // The store changes the messages that it gets.
    const endpoints = Array.from(infos.values(), ({ ...info }) => info);
    transaction.setSource({ namespace, name: sourceName, serviceName, endpoints });
  }
}

/** In order of the hash, so that the order in which a server sends does not matter. */
function settle(
  before: Infos | undefined,
  staged: ReadonlyMap<string, Staged<EndpointInfo>>,
  resyncing: boolean,
): Infos {
  const infos = new Map(resyncing ? [] : before);
  for (const [key, value] of staged) {
    const info = value === KEPT ? before?.get(key) : value;
    if (info === undefined || info === DELETED) infos.delete(key);
    else infos.set(key, info);
  }
  return new Map([...infos].sort(([a], [b]) => compareKeys(a, b)));
}
