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
    const distinct = () => [...new Map(this.inPathOrder(hasher)).values()];
    return (this.#globalFrames ??= kept(distinct().map((e) => endpointEntry(e, hasher).frame)));
  }

  /** Its endpoints in the order of their global paths, by what is particular to each path. */
  inPathOrder(hasher: Hasher): readonly (readonly [string, EndpointInfo])[] {
    return this.endpoints
      .map((info) => [`${info.sourceName}|${hashText(endpointHash(info, hasher))}`, info] as const)
      .sort(([a], [b]) => compareKeys(a, b));
  }

  from(source: string): readonly EndpointInfo[] {
    const found = this.endpoints.filter(({ sourceName }) => sourceName === source);
    return found.length === this.endpoints.length ? this.endpoints : found;
  }

  /** The record with the endpoints of one source replaced; none removes the source. */
  withSource(source: string, endpoints: readonly EndpointInfo[]): ServiceRecord {
    const others = this.endpoints.filter(({ sourceName }) => sourceName !== source);
    if (others.length === 0) return new ServiceRecord(this.service, endpoints);
    const before = others.filter(({ sourceName }) => sourceName < source);
    const merged = [...before, ...endpoints, ...others.slice(before.length)];
    return new ServiceRecord(this.service, merged);
  }
}
