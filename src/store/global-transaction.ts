import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import { isEqual } from '../util/compare.ts';
import type { Compactor } from './compact.ts';
import { ServiceRecord } from './service-record.ts';
import type { Table } from './table.ts';

export type GlobalSet = 'services' | 'endpoints' | 'nodes';
const ALL_SETS: readonly GlobalSet[] = ['services', 'endpoints', 'nodes'];

interface SourceName {
  readonly namespace: string;
  readonly serviceName: string;
  /** Name of the source, unique for its service. */
  readonly name: string;
}

/** Endpoints of one service that are added and removed together, such as those of an EndpointSlice. */
export interface EndpointSource extends SourceName {
  /** The store owns them: they get the names of the source, and equal parts are shared. */
  readonly endpoints: readonly EndpointInfo[];
}

/** The endpoints of a source from one index up to another. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** Changed endpoints of a source with very many. */
export interface PatchedSource extends SourceName {
  /** The new list; ranges refer to the one before the transaction. */
  readonly endpoints: readonly (EndpointInfo | Range)[];
}

/** The parts of the store that a transaction changes. */
export interface Tables {
  readonly revision: number;
  readonly services: Table<ServiceRecord>;
  readonly nodes: Table<Node>;
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

  get changed(): boolean {
    return this.#changed;
  }

  /** Services that were added, less those that were removed. */
  get addedServices(): number {
    return this.#addedServices;
  }

  /** Undefined removes the service; its endpoints stay until their sources are removed. `key`: `namespace/name`. */
  setService(key: string, service: Service | undefined): void {
    const { services, compactor } = this.#tables;
    const old = services.get(key) ?? NOTHING;
    if (isEqual(old.service, service)) return;
    this.#addedServices += (service === undefined ? 0 : 1) - (old.service === undefined ? 0 : 1);
    if (service !== undefined) compactor.compactService(service);
    this.#setRecord(key, old.withService(service));
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

  /**
   * The same for a change of a few endpoints of very many. Ranges refer to the list before the transaction, which
   * `updateInParts` keeps, and `update` only if a reader needs it.
   */
  patchSource(source: PatchedSource): void {
    const { services, compactor, revision } = this.#tables;
    const key = servicePath(source.namespace, source.serviceName);
    const old = services.at(key, revision - 1)?.from(source.name) ?? [];
    const updated: EndpointInfo[] = [];
    for (const part of source.endpoints) {
      if ('from' in part) {
        for (let at = part.from; at < part.to; at += 1) updated.push(old[at] as EndpointInfo);
      } else {
        const info = adopt(part, source, compactor, updated.at(-1));
        const before = old[updated.length];
        updated.push(before !== undefined && isSame(before, info) ? before : info);
      }
    }
    const record = services.get(key) ?? NOTHING;
    if (isEqual(record.from(source.name), updated)) return;
    this.#setRecord(key, record.withSource(source.name, updated));
  }

  /** Undefined removes the node. */
  setNode(name: string, node: Node | undefined): void {
    const { nodes, revision } = this.#tables;
    if (isEqual(nodes.get(name), node)) return;
    nodes.set(name, node, revision);
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

/** An endpoint as the store keeps it. `previous`: the one before it. */
function adopt(
  info: EndpointInfo,
  { namespace, name, serviceName }: SourceName,
  compactor: Compactor,
  previous: EndpointInfo | undefined,
): EndpointInfo {
  info.hash = 0n;
  info.namespace = namespace;
  info.sourceName = name;
  info.serviceName = serviceName;
  compactor.compactEndpoint(info, previous);
  return info;
}

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
    previous = adopt(info, source, compactor, previous);
    let before = old[index];
    if (old.length > 0 && (before === undefined || addressOf(before) !== addressOf(info))) {
      byAddress ??= new Map(old.map((each) => [addressOf(each), each]));
      before = byAddress.get(addressOf(info));
      same = false;
    }
    if (before !== undefined && isSame(before, info)) return before;
    same = false;
    return info;
  });
  return same ? old : updated;
}

/** Whether a new endpoint, which has no hash yet, equals one of the store. */
function isSame(before: EndpointInfo, info: EndpointInfo): boolean {
  return isEqual({ ...before, hash: 0n }, info);
}

/** The most likely identity of an endpoint of a source. */
function addressOf({ endpoint, podName }: EndpointInfo): string {
  return endpoint?.ips?.v4[0] ?? endpoint?.ips?.v6[0] ?? podName;
}
