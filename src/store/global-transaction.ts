import { isDeepStrictEqual } from 'node:util';
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { servicePath } from '../api/paths.ts';
import { compacted, type Topologies } from './compact.ts';
import { NO_SOURCES, ServiceRecord } from './service-record.ts';
import { StoredEndpoint, StoredNode, StoredService } from './stored.ts';
import type { Table } from './table.ts';

export type GlobalSet = 'services' | 'endpoints' | 'nodes';
const ALL_SETS: readonly GlobalSet[] = ['services', 'endpoints', 'nodes'];

/** Endpoints of one service that are added and removed together, such as those of an EndpointSlice. */
export interface EndpointSource {
  readonly namespace: string;
  /** Name of the source, unique in its namespace. */
  readonly name: string;
  readonly serviceName: string;
  /** Each has the namespace, and the names of the service and the source. Their `hash` is ignored. */
  readonly endpoints: readonly EndpointInfo[];
}

/** A range of a source's list of endpoints: from the first index, up to but excluding the second. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** The parts of the store that a transaction changes. */
export interface Tables {
  readonly hasher: Hasher;
  /** The new revision. */
  readonly revision: number;
  readonly services: Table<ServiceRecord>;
  readonly nodes: Table<StoredNode>;
  readonly sources: Map<string, string>;
  readonly complete: Set<GlobalSet>;
  readonly topologies: Topologies;
}

/**
 * One change of the global state. The messages passed in must not be changed afterwards; values equal to the current
 * ones change nothing.
 */
export class GlobalTransaction {
  readonly #tables: Tables;
  #changed = false;
  #addedServices = 0;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** Whether anything has changed so far. */
  get changed(): boolean {
    return this.#changed;
  }

  /** Services that were added, less those that were removed. */
  get addedServices(): number {
    return this.#addedServices;
  }

  setService(service: Service): void {
    const key = servicePath(service.namespace, service.name);
    const old = this.#tables.services.get(key);
    if (isDeepStrictEqual(old?.service?.service, service)) return;
    if (old?.service === undefined) this.#addedServices++;
    this.#setRecord(key, this.#recordOf(key).withService(new StoredService(service)));
  }

  /** Its endpoints stay until their sources are removed. */
  deleteService(namespace: string, name: string): void {
    const key = servicePath(namespace, name);
    const old = this.#tables.services.get(key);
    if (old?.service === undefined) return;
    this.#addedServices--;
    this.#setRecord(key, old.withService(undefined));
  }

  /** Replaces the source's previous entry, even one of another service. */
  setSource(source: EndpointSource): void {
    const { namespace, name, serviceName, endpoints } = source;
    const { sources } = this.#tables;
    const sourceKey = servicePath(namespace, name);
    const key = servicePath(namespace, serviceName);
    const previousKey = sources.get(sourceKey);
    if (previousKey !== undefined && previousKey !== key) this.#clear(previousKey, name);
    if (endpoints.length > 0) sources.set(sourceKey, key);
    else sources.delete(sourceKey);
    const old = this.#tables.services.get(key)?.sources.get(name) ?? [];
    const updated = carriedOver(old, source, this.#tables.topologies);
    if (updated !== old) this.#setRecord(key, this.#recordOf(key).withSource(name, updated));
  }

  /**
   * Changes some endpoints of a source, at a cost independent of the others. `parts` are all of its endpoints in
   * their new order: ranges of the current list, in order and without overlap, and new ones.
   */
  patchSource(
    source: Omit<EndpointSource, 'endpoints'>,
    parts: readonly (Range | readonly EndpointInfo[])[],
  ): void {
    const { namespace, name, serviceName } = source;
    const key = servicePath(namespace, serviceName);
    const old = this.#tables.services.get(key)?.sources.get(name) ?? [];
    const all: StoredEndpoint[] = [];
    const added: StoredEndpoint[] = [];
    const removed: StoredEndpoint[] = [];
    const addTo = (list: StoredEndpoint[], more: readonly StoredEndpoint[]): void => {
      for (const stored of more) list.push(stored);
    };
    let next = 0;
    for (const part of parts) {
      if ('from' in part) {
        addTo(removed, old.slice(next, part.from));
        addTo(all, old.slice(part.from, part.to));
        next = part.to;
        continue;
      }
      const given = carriedOver([], { ...source, endpoints: part }, this.#tables.topologies);
      addTo(added, given);
      addTo(all, given);
    }
    addTo(removed, old.slice(next));
    if (removed.length + added.length === 0) return;
    if (all.length > 0) this.#tables.sources.set(servicePath(namespace, name), key);
    else this.#tables.sources.delete(servicePath(namespace, name));
    this.#setRecord(key, this.#recordOf(key).withSource(name, all, { removed, added }));
  }

  /** Removes the source and its endpoints. */
  deleteSource(namespace: string, name: string): void {
    const sourceKey = servicePath(namespace, name);
    const key = this.#tables.sources.get(sourceKey);
    if (key === undefined) return;
    this.#tables.sources.delete(sourceKey);
    this.#clear(key, name);
  }

  setNode(node: Node): void {
    const { nodes, revision } = this.#tables;
    if (isDeepStrictEqual(nodes.get(node.name)?.node, node)) return;
    nodes.set(node.name, new StoredNode(node), revision);
    this.#changed = true;
  }

  deleteNode(name: string): void {
    const { nodes, revision } = this.#tables;
    if (nodes.get(name) === undefined) return;
    nodes.set(name, undefined, revision);
    this.#changed = true;
  }

  /** Marks the sets (all of them, if none is named) as complete. */
  setComplete(...sets: readonly GlobalSet[]): void {
    for (const set of sets.length === 0 ? ALL_SETS : sets) {
      if (this.#tables.complete.has(set)) continue;
      this.#tables.complete.add(set);
      this.#changed = true;
    }
  }

  #recordOf(key: string): ServiceRecord {
    const { services, hasher } = this.#tables;
    return services.get(key) ?? new ServiceRecord(undefined, NO_SOURCES, hasher);
  }

  #clear(key: string, sourceName: string): void {
    const record = this.#tables.services.get(key);
    if (record?.sources.has(sourceName)) this.#setRecord(key, record.withSource(sourceName, []));
  }

  #setRecord(key: string, record: ServiceRecord): void {
    const { services, revision } = this.#tables;
    const empty = record.service === undefined && record.sources.size === 0;
    services.set(key, empty ? undefined : record, revision);
    this.#changed = true;
  }
}

/** The new list with the old objects where they are equal; the old list if all are. */
function carriedOver(
  old: readonly StoredEndpoint[],
  source: EndpointSource,
  topologies: Topologies,
): readonly StoredEndpoint[] {
  let byAddress: Map<string, StoredEndpoint> | undefined;
  let same = old.length === source.endpoints.length;
  let previous: EndpointInfo | undefined;
  const updated = source.endpoints.map((given, index) => {
    const info = compacted(given, source, previous, topologies);
    previous = info;
    let before = old[index];
    if (old.length > 0 && (before === undefined || addressOf(before.info) !== addressOf(info))) {
      byAddress ??= new Map(old.map((stored) => [addressOf(stored.info), stored]));
      before = byAddress.get(addressOf(info));
      same = false;
    }
    if (before !== undefined && isDeepStrictEqual(before.info, info)) return before;
    same = false;
    return new StoredEndpoint(info);
  });
  return same ? old : updated;
}

/** The most likely identity of an endpoint of a source. */
function addressOf({ endpoint, podName }: EndpointInfo): string {
  return endpoint?.ips?.v4[0] ?? endpoint?.ips?.v6[0] ?? podName;
}
