import { isDeepStrictEqual } from 'node:util';
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import type { Compactor } from './compact.ts';
import { ServiceRecord } from './service-record.ts';
import { StoredNode, StoredService } from './stored.ts';
import type { Table } from './table.ts';

export type GlobalSet = 'services' | 'endpoints' | 'nodes';
const ALL_SETS: readonly GlobalSet[] = ['services', 'endpoints', 'nodes'];

/** Endpoints of one service that are added and removed together, such as those of an EndpointSlice. */
export interface EndpointSource {
  readonly namespace: string;
  readonly serviceName: string;
  /** Name of the source, unique for its service. */
  readonly name: string;
  /** The store owns them: they get the names of the source, and equal parts are shared. */
  readonly endpoints: readonly EndpointInfo[];
}

/** The parts of the store that a transaction changes. */
export interface Tables {
  /** The new revision. */
  readonly revision: number;
  readonly services: Table<ServiceRecord>;
  readonly nodes: Table<StoredNode>;
  readonly complete: Set<GlobalSet>;
  readonly compactor: Compactor;
}

/**
 * One change of the global state. The messages passed in belong to the store from then on; values equal to the current
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
    const { services, compactor } = this.#tables;
    const old = services.get(key);
    if (isDeepStrictEqual(old?.service?.service, service)) return;
    if (old?.service === undefined) this.#addedServices++;
    compactor.compactService(service);
    this.#setRecord(key, (old ?? NOTHING).withService(new StoredService(service)));
  }

  /** `key`: `namespace/name`. Its endpoints stay until their sources are removed. */
  deleteService(key: string): void {
    const old = this.#tables.services.get(key);
    if (old?.service === undefined) return;
    this.#addedServices--;
    this.#setRecord(key, old.withService(undefined));
  }

  /** Replaces the endpoints that the service has from this source; none removes the source. */
  setSource(source: EndpointSource): void {
    const { services, compactor } = this.#tables;
    const key = servicePath(source.namespace, source.serviceName);
    const record = services.get(key) ?? NOTHING;
    const old = record.from(source.name);
    const updated = carriedOver(old, source, compactor);
    if (updated !== old) this.#setRecord(key, record.withSource(source.name, updated));
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

  #setRecord(key: string, record: ServiceRecord): void {
    const { services, revision } = this.#tables;
    const empty = record.service === undefined && record.endpoints.length === 0;
    services.set(key, empty ? undefined : record, revision);
    this.#changed = true;
  }
}

const NOTHING = new ServiceRecord();

/** The new list with the old objects where they are equal; the old list if all are. */
function carriedOver(
  old: readonly EndpointInfo[],
  source: EndpointSource,
  compactor: Compactor,
): readonly EndpointInfo[] {
  let byAddress: Map<string, EndpointInfo> | undefined;
  let same = old.length === source.endpoints.length;
  let previous: EndpointInfo | undefined;
  const updated = source.endpoints.map((info, index) => {
    info.hash = 0n;
    info.namespace = source.namespace;
    info.sourceName = source.name;
    info.serviceName = source.serviceName;
    compactor.compactEndpoint(info, previous);
    previous = info;
    let before = old[index];
    if (old.length > 0 && (before === undefined || addressOf(before) !== addressOf(info))) {
      byAddress ??= new Map(old.map((each) => [addressOf(each), each]));
      before = byAddress.get(addressOf(info));
      same = false;
    }
    if (before !== undefined && isDeepStrictEqual({ ...before, hash: 0n }, info)) return before;
    same = false;
    return info;
  });
  return same ? old : updated;
}

/** The most likely identity of an endpoint of a source. */
function addressOf({ endpoint, podName }: EndpointInfo): string {
  return endpoint?.ips?.v4[0] ?? endpoint?.ips?.v6[0] ?? podName;
}
