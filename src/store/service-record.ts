import { hashText, type Hasher } from '../api/hash.ts';
import { ServiceViews, type EndpointsChange, type ViewsChange } from './service-views.ts';
import type { StoredEndpoint, StoredService } from './stored.ts';
import { compareKeys } from './table.ts';
import { kept } from '../util/kept.ts';

/** Endpoints by the name of their source, such as an EndpointSlice. */
export type Sources = ReadonlyMap<string, readonly StoredEndpoint[]>;

export const NO_SOURCES: Sources = new Map();

/**
 * A service with the endpoints of all its sources, at one moment. Immutable: a change makes a new record, which
 * shares the unchanged parts.
 */
export class ServiceRecord {
  /** Undefined: there are endpoints, but their service does not exist (yet). */
  readonly service: StoredService | undefined;
  readonly sources: Sources;
  readonly #hasher: Hasher;
  /** The change from the views of a previous record; dropped when the views are made, or when it grows too large. */
  #change: ViewsChange | undefined;
  #endpoints: readonly StoredEndpoint[] | undefined;
  #views: ServiceViews | undefined;
  #globalFrames: Buffer | undefined;

  constructor(
    service: StoredService | undefined,
    sources: Sources,
    hasher: Hasher,
    change?: ViewsChange,
  ) {
    this.service = service;
    this.sources = sources;
    this.#hasher = hasher;
    this.#change = change;
  }

  /** Every endpoint, in the order of the sources' names, and within a source in its own order. */
  get endpoints(): readonly StoredEndpoint[] {
    this.#endpoints ??= flatten(this.sources);
    return this.#endpoints;
  }

  /** The nodes' views of it; undefined without the service. */
  get views(): ServiceViews | undefined {
    if (this.service === undefined) return undefined;
    if (this.#views === undefined) {
      const { service } = this.service;
      this.#views = new ServiceViews(service, this.endpoints, this.#hasher, this.#change);
      this.#change = undefined;
    }
    return this.#views;
  }

  /** The frames that set its endpoints in the global API, in one cached piece. */
  globalFrames(): Buffer {
    if (this.#globalFrames === undefined) {
      const entries = new Map(this.inPathOrder());
      const frames = [...entries.values()].map((stored) => stored.global(this.#hasher).frame);
      this.#globalFrames = kept(frames);
    }
    return this.#globalFrames;
  }

  /** Its endpoints in the order of their global paths, by what is particular to each path. */
  inPathOrder(): readonly (readonly [string, StoredEndpoint])[] {
    return this.endpoints
      .map(
        (stored) =>
          [`${stored.info.sourceName}|${hashText(stored.hash(this.#hasher))}`, stored] as const,
      )
      .sort(([a], [b]) => compareKeys(a, b));
  }

  withService(service: StoredService | undefined): ServiceRecord {
    return new ServiceRecord(service, this.sources, this.#hasher);
  }

  /**
   * The record with the endpoints of one source replaced; none removes the source. `changed`: the difference, if
   * known.
   */
  withSource(
    name: string,
    endpoints: readonly StoredEndpoint[],
    changed?: EndpointsChange,
  ): ServiceRecord {
    const sources = new Map(this.sources);
    if (endpoints.length === 0) sources.delete(name);
    else sources.set(name, endpoints);
    // Of several changes without a read in between, only the first is cheap.
    const change = changed && this.#views && { ...changed, views: this.#views };
    return new ServiceRecord(this.service, sources, this.#hasher, change);
  }
}

function flatten(sources: Sources): readonly StoredEndpoint[] {
  const [first, ...others] = [...sources.keys()].sort();
  if (first === undefined) return [];
  const endpoints = sources.get(first) ?? [];
  if (others.length === 0) return endpoints;
  return endpoints.concat(others.flatMap((name) => sources.get(name) ?? []));
}
