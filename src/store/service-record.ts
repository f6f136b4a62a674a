import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { hashText, type Hasher } from '../api/hash.ts';
import { kept } from '../util/byte-buffer.ts';
import { ServiceViews } from './service-views.ts';
import { endpointEntry, endpointHash } from './stored.ts';
import { compareKeys } from './table.ts';

/**
 * A service with the endpoints of all its sources, such as EndpointSlices, at one moment. Immutable: a change makes a
 * new record, which shares the unchanged parts.
 */
export class ServiceRecord {
  /** Undefined: there are endpoints, but their service does not exist (yet). */
  readonly service: Service | undefined;
  /** Every endpoint, in the order of the sources' names, and within a source in its own order. */
  readonly endpoints: readonly EndpointInfo[];
  #views: ServiceViews | undefined;
  #globalFrames: Buffer | undefined;

  constructor(service?: Service, endpoints: readonly EndpointInfo[] = []) {
    this.service = service;
    this.endpoints = endpoints;
  }

  /** The nodes' views of it, cached; undefined without the service. */
  views(hasher: Hasher): ServiceViews | undefined {
    if (this.service === undefined) return undefined;
    return (this.#views ??= new ServiceViews(this.service, this.endpoints, hasher));
  }

  /** The frames that set its endpoints in the global API, in one cached piece. */
  globalFrames(hasher: Hasher): Buffer {
    if (this.#globalFrames === undefined) {
      const entries = new Map(this.inPathOrder(hasher));
      this.#globalFrames = kept([...entries.values()].map((e) => endpointEntry(e, hasher).frame));
    }
    return this.#globalFrames;
  }

  /** Its endpoints in the order of their global paths, by what is particular to each path. */
  inPathOrder(hasher: Hasher): readonly (readonly [string, EndpointInfo])[] {
    return this.endpoints
      .map((info) => [`${info.sourceName}|${hashText(endpointHash(info, hasher))}`, info] as const)
      .sort(([a], [b]) => compareKeys(a, b));
  }

  withService(service: Service | undefined): ServiceRecord {
    return new ServiceRecord(service, this.endpoints);
  }

  from(source: string): readonly EndpointInfo[] {
    const first = this.endpoints.findIndex(({ sourceName }) => sourceName === source);
    if (first === -1) return [];
    const after = this.endpoints.findLastIndex(({ sourceName }) => sourceName === source) + 1;
    const isAll = first === 0 && after === this.endpoints.length;
    return isAll ? this.endpoints : this.endpoints.slice(first, after);
  }

  /** The record with the endpoints of one source replaced; none removes the source. */
  withSource(source: string, endpoints: readonly EndpointInfo[]): ServiceRecord {
    if (this.from(source) === this.endpoints) return new ServiceRecord(this.service, endpoints);
    const others = this.endpoints.filter(({ sourceName }) => sourceName !== source);
    if (others.length === 0) return new ServiceRecord(this.service, endpoints);
    const next = others.findIndex(({ sourceName }) => sourceName > source);
    const at = next === -1 ? others.length : next;
    const merged = [...others.slice(0, at), ...endpoints, ...others.slice(at)];
    return new ServiceRecord(this.service, merged);
  }
}
