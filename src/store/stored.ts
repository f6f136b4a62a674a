/**
 * The messages of the global state as the store keeps them: never changed, and with their encodings,
 * which are made when the first client needs them and are shared by all.
 */
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
import type { Use } from './selection.ts';

/** An entry of a set: what clients are told of it. */
export interface Entry {
  readonly path: string;
  /** Sets it. */
  readonly frame: Buffer;
  /** Removes it. */
  deletion(): Buffer;
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
  #global: Entry | undefined;

  constructor(node: Node) {
    this.node = node;
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

export class StoredEndpoint {
  readonly info: EndpointInfo;
  /** As those see it that use it for all traffic and from elsewhere, which is most of them. */
  #usual: LocalEndpoint | undefined;
  /** As others see it, by how they use it. */
  #others: Map<number, LocalEndpoint> | undefined;
  #hash: bigint | undefined;

  constructor(info: EndpointInfo) {
    this.info = info;
  }

  /** What a node is told that uses the endpoint in this way. The same object for all such nodes. */
  local(use: NonNullable<Use>, endpoint: Endpoint, hasher: Hasher): LocalEndpoint {
    const { local, scopes } = use;
    const make = (): LocalEndpoint =>
      new LocalEndpoint(this.info, this.info.podName, { ...endpoint, ...use }, hasher);
    if (!local && scopes.internal && scopes.external) return (this.#usual ??= make());
    const index = Number(local) * 4 + Number(scopes.internal) * 2 + Number(scopes.external);
    this.#others ??= new Map();
    let made = this.#others.get(index);
    if (made === undefined) this.#others.set(index, (made = make()));
    return made;
  }

  /** Value of `EndpointInfo.hash`. */
  hash(hasher: Hasher): bigint {
    this.#hash ??= hasher.endpointInfo(this.info);
    return this.#hash;
  }

  /** In the set of endpoints of the global API. It is not kept: most are sent only as part of a whole. */
  global(hasher: Hasher): Entry {
    const hash = this.hash(hasher);
    const path = globalEndpointPath({ ...this.info, key: hashText(hash) });
    const value = EndpointInfo.encode({ ...this.info, hash }).finish();
    return entry(SetNumber.GlobalEndpointInfos, path, value);
  }
}

/** An endpoint as some nodes see it. */
export class LocalEndpoint implements Entry {
  /** The pod's name, or else a hash of the endpoint. */
  readonly key: string;
  readonly endpoint: Endpoint;
  readonly #names: EndpointNames;
  /** Whether the key is a pod's name. */
  readonly named: boolean;

  /** Without a pod's name the key is a hash. */
  constructor(names: EndpointNames, podName: string, endpoint: Endpoint, hasher: Hasher) {
    this.named = podName !== '';
    this.key = this.named ? podName : hasher.endpointKey(endpoint);
    this.endpoint = endpoint;
    this.#names = names;
  }

  get path(): string {
    const { namespace, serviceName } = this.#names;
    return endpointPath(namespace, serviceName, this.key);
  }

  /** It is not kept: most are sent only as part of a whole. */
  get frame(): Buffer {
    return setFrame(SetNumber.EndpointsSet, this.path, Endpoint.encode(this.endpoint).finish());
  }

  deletion(): Buffer {
    return deleteFrame(SetNumber.EndpointsSet, this.path);
  }
}

type EndpointNames = Pick<EndpointInfo, 'namespace' | 'serviceName'>;

function entry(set: number, path: string, value: Uint8Array): Entry {
  return { path, frame: setFrame(set, path, value), deletion: () => deleteFrame(set, path) };
}
