import type { Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import type { EndpointSource, GlobalSet, GlobalTransaction } from '../store/global-transaction.ts';
import type { KubeOrphans } from './events.ts';
import { compileGlobs } from './globs.ts';
import { nameOf } from './json.ts';
import { mapNode } from './map-node.ts';
import { type Forwarded, mapService } from './map-service.ts';
import { mapSlice } from './map-slice.ts';
import { type Resource, type Selection, serviceSelector } from './resource.ts';

/** Applies the objects of one resource to the global state. */
export interface Feed<T> {
  readonly resource: Resource<T>;
  readonly set: GlobalSet;
  /** Undefined: the object is gone. */
  change(transaction: GlobalTransaction, key: string, value: T | undefined): void;
}

export function serviceFeed(selection: Selection, orphans: OrphanBook): Feed<Service> {
  const forwarded = forwardedBy(selection.serviceLabels, selection.serviceAnnotations);
  const named = (raw: Parameters<typeof nameOf>[1]) => nameOf('Service', raw, true);
  return {
    set: 'services',
    resource: {
      name: 'services',
      path: '/api/v1/services',
      labelSelector: serviceSelector(selection.proxyName),
      metadataOnly: false,
      keyOf: (raw) => keyOf(named(raw)),
      decode: (raw) => mapService(named(raw), raw, forwarded),
    },
    change(transaction, key, service) {
      orphans.setService(key, service !== undefined);
      if (service !== undefined) transaction.setService(service);
      else transaction.deleteService(...split(key));
    },
  };
}

export function sliceFeed(orphans: OrphanBook): Feed<EndpointSource> {
  const named = (raw: Parameters<typeof nameOf>[1]) => nameOf('EndpointSlice', raw, true);
  return {
    set: 'endpoints',
    resource: {
      name: 'endpointslices',
      path: '/apis/discovery.k8s.io/v1/endpointslices',
      labelSelector: '',
      metadataOnly: false,
      keyOf: (raw) => keyOf(named(raw)),
      decode: (raw) => mapSlice(named(raw), raw),
    },
    change(transaction, key, source) {
      const owner = source?.serviceName ?? '';
      const service = owner === '' ? undefined : servicePath(source?.namespace ?? '', owner);
      orphans.setSlice(key, service);
      if (source !== undefined && source.endpoints.length > 0) transaction.setSource(source);
      else transaction.deleteSource(...split(key));
    },
  };
}

/** For nodes, only metadata is requested: the rest is large and changes constantly. */
export function nodeFeed(selection: Selection): Feed<Node> {
  const forwarded = forwardedBy(selection.nodeLabels, selection.nodeAnnotations);
  const named = (raw: Parameters<typeof nameOf>[1]) => nameOf('Node', raw, false);
  return {
    set: 'nodes',
    resource: {
      name: 'nodes',
      path: '/api/v1/nodes',
      labelSelector: '',
      metadataOnly: true,
      keyOf: (raw) => named(raw).name,
      decode: (raw) => mapNode(named(raw), raw, forwarded),
    },
    change(transaction, key, node) {
      if (node !== undefined) transaction.setNode(node);
      else transaction.deleteNode(key);
    },
  };
}

function forwardedBy(labels: readonly string[], annotations: readonly string[]): Forwarded {
  return { labels: compileGlobs(labels), annotations: compileGlobs(annotations) };
}

function keyOf({ namespace, name }: { namespace: string; name: string }): string {
  return servicePath(namespace, name);
}

function split(key: string): [namespace: string, name: string] {
  const slash = key.indexOf('/');
  return [key.slice(0, slash), key.slice(slash + 1)];
}

/** Tracks EndpointSlices whose service does not exist. Each change has constant cost. */
export class OrphanBook {
  readonly #services = new Set<string>();
  /** The service that a slice names. */
  readonly #serviceOf = new Map<string, string>();
  /** The slices of missing services. */
  readonly #orphans = new Map<string, Set<string>>();
  /** The others. */
  readonly #adopted = new Map<string, Set<string>>();
  #count = 0;

  setService(service: string, present: boolean): void {
    if (present === this.#services.has(service)) return;
    const [from, to] = present ? [this.#orphans, this.#adopted] : [this.#adopted, this.#orphans];
    const slices = from.get(service);
    if (present) this.#services.add(service);
    else this.#services.delete(service);
    if (slices === undefined) return;
    from.delete(service);
    to.set(service, slices);
    this.#count += present ? -slices.size : slices.size;
  }

  /** `service` undefined: the slice was deleted, or names none. */
  setSlice(slice: string, service: string | undefined): void {
    const previous = this.#serviceOf.get(slice);
    if (previous === service) return;
    if (previous !== undefined) this.#remove(slice, previous);
    if (service === undefined) return;
    this.#serviceOf.set(slice, service);
    const book = this.#bookOf(service);
    const slices = book.get(service);
    if (slices === undefined) book.set(service, new Set([slice]));
    else slices.add(slice);
    if (book === this.#orphans) this.#count += 1;
  }

  summary(): KubeOrphans {
    for (const [service, slices] of this.#orphans) {
      for (const slice of slices) return { count: this.#count, example: { slice, service } };
    }
    return { count: 0, example: undefined };
  }

  #remove(slice: string, service: string): void {
    const book = this.#bookOf(service);
    const slices = book.get(service);
    this.#serviceOf.delete(slice);
    slices?.delete(slice);
    if (slices?.size === 0) book.delete(service);
    if (book === this.#orphans) this.#count -= 1;
  }

  #bookOf(service: string): Map<string, Set<string>> {
    return this.#services.has(service) ? this.#adopted : this.#orphans;
  }
}
