import type { Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import type { GlobalStore } from '../store/global-store.ts';
import type { EndpointSource, GlobalSet, GlobalTransaction } from '../store/global-transaction.ts';
import type { KubeOrphans } from './events.ts';
import { compileGlobs } from './globs.ts';
import { type Forwarded, mapNode, mapService, mapSlice } from './map.ts';
import { type Resource, type Selection, serviceSelector } from './resource.ts';

/** Applies the objects of one resource to the global state. */
export interface Feed<T> extends Resource<T> {
  readonly set: GlobalSet;
  /** Undefined: the object is gone. */
  change(transaction: GlobalTransaction, key: string, value: T | undefined): void;
}

export function serviceFeed(selection: Selection): Feed<Service> {
  const forwarded = forwardedBy(selection.serviceLabels, selection.serviceAnnotations);
  return {
    set: 'services',
    name: 'services',
    kind: 'Service',
    path: '/api/v1/services',
    labelSelector: serviceSelector(selection.proxyName),
    decode: (name, raw) => mapService(name, raw, forwarded),
    change: (transaction, key, service) => transaction.setService(key, service),
  };
}

export function sliceFeed(): Feed<EndpointSource> {
  /** The service of each slice with endpoints. */
  const owners = new Map<string, string>();
  return {
    set: 'endpoints',
    name: 'endpointslices',
    kind: 'EndpointSlice',
    path: '/apis/discovery.k8s.io/v1/endpointslices',
    decode: mapSlice,
    change(transaction, key, source) {
      const before = owners.get(key);
      if (before !== undefined && before !== source?.serviceName) {
        const [namespace, name] = split(key);
        transaction.setSource({ namespace, name, serviceName: before, endpoints: [] });
      }
      if (source !== undefined) transaction.setSource(source);
      if (source === undefined || source.endpoints.length === 0) owners.delete(key);
      else owners.set(key, source.serviceName);
    },
  };
}

/** For nodes, only metadata is requested: the rest is large and changes constantly. */
export function nodeFeed(selection: Selection): Feed<Node> {
  const forwarded = forwardedBy(selection.nodeLabels, selection.nodeAnnotations);
  return {
    set: 'nodes',
    name: 'nodes',
    kind: 'Node',
    path: '/api/v1/nodes',
    metadataOnly: true,
    decode: (name, raw) => mapNode(name, raw, forwarded),
    change: (transaction, name, node) => transaction.setNode(name, node),
  };
}

function forwardedBy(labels: readonly string[], annotations: readonly string[]): Forwarded {
  return { labels: compileGlobs(labels), annotations: compileGlobs(annotations) };
}

function split(key: string): [namespace: string, name: string] {
  const slash = key.indexOf('/');
  return [key.slice(0, slash), key.slice(slash + 1)];
}

/** The EndpointSlices with endpoints whose service is missing. Reads the whole store. */
export function orphansIn({ services }: GlobalStore): KubeOrphans {
  let count = 0;
  let example: KubeOrphans['example'];
  for (const { key, value } of services.changedSince(0)) {
    if (value === undefined || value.service !== undefined) continue;
    const slices = new Set(value.endpoints.map(({ sourceName }) => sourceName));
    count += slices.size;
    const [name = ''] = slices;
    example ??= { slice: servicePath(split(key)[0], name), service: key };
  }
  return { count, example };
}
