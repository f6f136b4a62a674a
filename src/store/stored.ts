/**
 * The messages of the global state as the store keeps them: immutable, with encodings that are made when the first
 * client needs them and shared by all.
 */
import { isDeepStrictEqual } from 'node:util';
import { deleteFrame, setFrame } from '../api/frames.ts';
import { EndpointInfo, NodeInfo, ServiceInfo, type Node } from '../api/generated/globalv1/api.ts';
import { Endpoint, Service, Set as SetNumber } from '../api/generated/localv1/api.ts';
import { hashText, type Hasher } from '../api/hash.ts';
import {
  endpointPath,
  globalEndpointPath,
  globalNodePath,
  globalServicePath,
  servicePath,
} from '../api/paths.ts';
import type { Use, ViewNode } from './selection.ts';

/** An entry of a set: the message for clients. */
export interface Entry {
  readonly path: string;
  /** The frame that sets it. */
  readonly frame: Buffer;
  /** The frame that removes it. */
  deletion(): Buffer;
}

/** Whether clients that have the one need not be sent the other. Undefined: none. */
export function isSameEntry(a: Entry | undefined, b: Entry | undefined): boolean {
  return a === b || (b !== undefined && a?.frame.equals(b.frame) === true);
}

export class StoredService {
  readonly service: Service;
  /** `namespace/name` */
  readonly key: string;
  #local: Entry | undefined;
  #global: Entry | undefined;

  constructor(service: Service) {
    this.service = service;
    this.key = servicePath(service.namespace, service.name);
  }

  /** In the set of services of the local API. */
  local(): Entry {
    this.#local ??= entry(SetNumber.ServicesSet, this.key, Service.encode(this.service).finish());
    return this.#local;
  }

  /** In the set of services of the global API. */
  global(hasher: Hasher): Entry {
    if (this.#global === undefined) {
      const { service } = this;
      const path = globalServicePath(service.namespace, service.name);
      const value = ServiceInfo.encode({ hash: hasher.service(service), service }).finish();
      this.#global = entry(SetNumber.GlobalServiceInfos, path, value);
    }
    return this.#global;
  }
}

export class StoredNode {
  readonly node: Node;
  /** In the form that views need. */
  readonly view: ViewNode;
  #global: Entry | undefined;

  constructor(node: Node) {
    this.node = node;
    this.view = { name: node.name, zone: zoneOf(node) };
  }

  /** In the set of nodes of the global API. */
  global(hasher: Hasher): Entry {
    if (this.#global === undefined) {
      const { node } = this;
      const value = NodeInfo.encode({ hash: hasher.node(node), node }).finish();
      this.#global = entry(SetNumber.GlobalNodeInfos, globalNodePath(node.name), value);
    }
    return this.#global;
  }
}

/** Value of `EndpointInfo.hash`, computed once for an endpoint of the store. */
export function endpointHash(info: EndpointInfo, hasher: Hasher): bigint {
  if (info.hash === 0n) info.hash = hasher.endpointInfo(info);
  return info.hash;
}

/** An endpoint in its set of the global API. Not cached: most are sent only as part of a whole. */
export function endpointEntry(info: EndpointInfo, hasher: Hasher): Entry {
  const path = globalEndpointPath({ ...info, key: hashText(endpointHash(info, hasher)) });
  return entry(SetNumber.GlobalEndpointInfos, path, EndpointInfo.encode(info).finish());
}

/** An endpoint as some nodes see it. */
export class LocalEndpoint implements Entry {
  /** The pod's name, or else a hash of the endpoint. */
  readonly key: string;
  /** Whether the key is a pod's name. */
  readonly named: boolean;
  readonly #names: EndpointNames;
  readonly #content: Endpoint;
  readonly #use: Use;

  /** Without a pod's name the key is a hash. */
  constructor(
    names: EndpointNames,
    podName: string | undefined,
    content: Endpoint,
    use: Use,
    hasher: Hasher,
  ) {
    this.#names = names;
    this.#content = content;
    this.#use = use;
    this.named = podName !== undefined && podName !== '';
    this.key = podName || hasher.endpointKey(this.endpoint);
  }

  /** Built on each call: most endpoints are read only once. */
  get endpoint(): Endpoint {
    return { ...this.#content, ...this.#use };
  }

  get path(): string {
    const { namespace, serviceName } = this.#names;
    return endpointPath(namespace, serviceName, this.key);
  }

  /** Built on each call: most are sent only as part of a whole. */
  get frame(): Buffer {
    return setFrame(SetNumber.EndpointsSet, this.path, Endpoint.encode(this.endpoint).finish());
  }

  deletion(): Buffer {
    return deleteFrame(SetNumber.EndpointsSet, this.path);
  }

  /** Whether another one with the same key is equal. */
  equals(other: LocalEndpoint): boolean {
    if (this.#use !== other.#use) return false;
    // The content of a merged one has its use, too.
    return this.#content === other.#content || isDeepStrictEqual(this.endpoint, other.endpoint);
  }
}

type EndpointNames = Pick<EndpointInfo, 'namespace' | 'serviceName'>;

function entry(set: number, path: string, value: Uint8Array): Entry {
  return { path, frame: setFrame(set, path, value), deletion: () => deleteFrame(set, path) };
}

const ZONE_LABEL = 'topology.kubernetes.io/zone';

/** The zone in the node's topology, or else its zone label. */
export function zoneOf(node: Node): string {
  const zone = node.topology?.zone ?? '';
  return zone === '' ? (node.labels[ZONE_LABEL] ?? '') : zone;
}
