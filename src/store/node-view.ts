import { setImmediate } from 'node:timers/promises';
import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { comparePaths } from '../api/paths.ts';
import { isEqual, put } from '../util/compare.ts';
import { withChanges } from './change-set.ts';
import type { GlobalStore } from './global-store.ts';
import type { Pin } from './table.ts';
import type { LocalChange, LocalView, ServiceEntry } from './local-view.ts';
import { rulesOf, traitsOf, type Rules, type Traits, type ViewNode } from './selection.ts';
import { areDistinct, type ServiceRecord, ServiceViews } from './service-views.ts';
import type { LocalEndpoint } from './stored.ts';

/** A large change yields to other work after this long. Milliseconds. */
const TURN_MS = 10;

/** From this number of endpoints on, the last entry of a service is kept: the next one is made from it. */
const LARGE = 1000;

/**
 * One node's view of a store, for a sink within this process. Entries are read from the store, at the revision of the
 * last change set.
 */
export class NodeView implements LocalView {
  readonly #store: GlobalStore;
  #pin: Pin | undefined;
  #node: ViewNode;
  #size = 0;
  /** The entries of large services, as they are now. */
  readonly #large = new Map<string, NodeEntry>();

  /** `nodeName` empty: no particular node. `clusterScope`: whether the sink knows the scope `cluster`. */
  constructor(store: GlobalStore, nodeName: string, clusterScope: boolean) {
    this.#store = store;
    this.#node = { name: nodeName, zone: '', clusterScope };
  }

  get size(): number {
    return this.#size;
  }

  get(key: string): NodeEntry | undefined {
    const kept = this.#large.get(key);
    if (kept !== undefined) return kept;
    const entry = this.#entryAt(key, this.#pin?.revision ?? 0, this.#node);
    if (entry?.isLarge === true) this.#large.set(key, entry);
    return entry;
  }

  *entries(): Generator<ServiceEntry, void, undefined> {
    for (const key of this.#store.services.keys(comparePaths)) {
      const entry = this.get(key);
      if (entry !== undefined) yield entry;
    }
  }

  /**
   * Moves on to the newest state. Undefined before the store is synced, and when nothing differs for the node. The
   * first change set may be empty. `operations`: how many changes of services and endpoints it has, and the Sync.
   */
  async next(): Promise<(LocalChange & { readonly operations: number }) | undefined> {
    const store = this.#store;
    const from = this.#pin;
    if (!store.synced || from?.revision === store.revision) return undefined;
    const to = store.pin();
    const size = store.serviceCount;
    const newest = store.viewNode(this.#node.name, this.#node.clusterScope);
    const isSameNode = isEqual(newest, this.#node);
    const node = isSameNode ? this.#node : newest;
    const changed = new Set<string>();
    const large = new Map<string, NodeEntry | undefined>();
    let operations = 1;
    let turnEnd = performance.now() + TURN_MS;
    for (const key of store.services.changedSince(isSameNode ? (from?.revision ?? 0) : 0)) {
      const before = this.get(key);
      const after = this.#entryAt(key, to.revision, node);
      // A service that comes or goes counts with all its endpoints, whichever of them the node uses.
      const whole = 1 + ((after ?? before)?.record.endpoints.length ?? -1);
      const count = before && after ? after.follow(before) : whole;
      if (before?.isLarge === true || after?.isLarge === true) {
        large.set(key, after?.isLarge === true ? after : undefined);
      }
      if (count > 0) changed.add(key);
      operations += count;
      if (performance.now() < turnEnd) continue;
      await setImmediate();
      turnEnd = performance.now() + TURN_MS;
    }
    from?.release();
    this.#pin = to;
    this.#node = node;
    this.#size = size;
    for (const [key, entry] of large) put(this.#large, key, entry);
    if (from !== undefined && changed.size === 0) return undefined;
    return { view: this, changed, operations };
  }

  #entryAt(key: string, revision: number, node: ViewNode): NodeEntry | undefined {
    const record = this.#store.services.at(key, revision);
    return record?.service && new NodeEntry(key, record, node, this.#store.hasher);
  }
}

type Infos = readonly EndpointInfo[];

/**
 * A service as one node sees it. The endpoints are selected when they are first read: most readers of very many
 * services look at those of few.
 */
export class NodeEntry implements ServiceEntry {
  readonly key: string;
  readonly record: ServiceRecord;
  readonly #node: ViewNode;
  readonly #hasher: Hasher;
  #traits: Traits | undefined;
  #endpoints: ReadonlyMap<string, Endpoint> | undefined;

  /** `record`: it has the service. */
  constructor(key: string, record: ServiceRecord, node: ViewNode, hasher: Hasher) {
    this.key = key;
    this.record = record;
    this.#node = node;
    this.#hasher = hasher;
  }

  get service(): Service {
    return this.record.service as Service;
  }

  get endpoints(): ReadonlyMap<string, Endpoint> {
    return (this.#endpoints ??= this.#sorted());
  }

  get isLarge(): boolean {
    return this.record.endpoints.length >= LARGE;
  }

  /**
   * How many of the service and its endpoints differ from an earlier state. Of a large service whose endpoints are all of
   * different pods, only changed endpoints are evaluated, and the others keep their objects.
   */
  follow(earlier: NodeEntry, isLarge = this.isLarge): number {
    const known = earlier.endpoints;
    let gone: Iterable<string> = known.keys();
    let updated = this.record.endpoints;
    const isAlone = isLarge && [earlier, this].every(({ record }) => areDistinct(record.endpoints));
    if (isAlone && isEqual(earlier.#rules(), this.#rules())) {
      const before = new Set(earlier.record.endpoints);
      updated = updated.filter((each) => !before.delete(each));
      gone = [...before].map(({ podName }) => podName);
    }
    const changes = new Map<string, Endpoint | undefined>();
    for (const each of gone) if (known.has(each)) changes.set(each, undefined);
    for (const [each, { endpoint }] of this.#select(updated)) {
      if (isEqual(known.get(each), endpoint)) changes.delete(each);
      else changes.set(each, endpoint);
    }
    if (isLarge) this.#endpoints = withChanges(known, changes);
    return changes.size + (isEqual(earlier.service, this.service) ? 0 : 1);
  }

  #rules(): Rules {
    return rulesOf(this.service, this.#traitsOfAll(), this.#node);
  }

  #sorted(): ReadonlyMap<string, Endpoint> {
    const selected = [...this.#select(this.record.endpoints).values()];
    const isSorted = selected.every(
      ({ key }, index) => index === 0 || comparePaths(selected[index - 1]?.key ?? '', key) <= 0,
    );
    if (!isSorted) selected.sort((a, b) => comparePaths(a.key, b.key));
    return new Map(selected.map((each) => [each.key, each.endpoint]));
  }

  #select(some: Infos): ReadonlyMap<string, LocalEndpoint> {
    const views = new ServiceViews(this.service, some, this.#hasher, this.#traitsOfAll());
    return views.endpoints(this.#node);
  }

  #traitsOfAll(): Traits {
    return (this.#traits ??= traitsOf(this.service, this.record.endpoints));
  }
}
