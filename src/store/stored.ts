/**
 * Encodings of the messages of the global state, which are immutable: made when the first client needs them, and shared
 * by all.
 */
import { deleteFrame, setFrame } from '../api/frames.ts';
import { EndpointInfo, NodeInfo, ServiceInfo, type Node } from '../api/generated/globalv1/api.ts';
import { Endpoint, Service, Set as SetNumber } from '../api/generated/localv1/api.ts';
import { hashText, type Hasher } from '../api/hash.ts';
import { servicePath } from '../api/paths.ts';
import { isEqual } from '../util/compare.ts';
import type { Use } from './selection.ts';

/** An entry of a set: the message for clients. */
export interface Entry {
  readonly frame: Buffer;
  deletion(): Buffer;
}

/** Whether clients that have the one need not be sent the other. Undefined: none. */
export function isSameEntry(a: Entry | undefined, b: Entry | undefined): boolean {
  return a === b || (b !== undefined && a?.frame.equals(b.frame) === true);
}

/** The frames that bring clients from one entry to another. An entry that is removed is added to `gone` instead. */
export function difference(
  before: Entry | undefined,
  after: Entry | undefined,
  gone: Entry[],
): readonly Buffer[] {
  if (before !== undefined && after === undefined) gone.push(before);
  return after === undefined || isSameEntry(before, after) ? [] : [after.frame];
}

function cached<M extends object, Rest extends unknown[]>(
  make: (message: M, ...rest: Rest) => Entry,
): (message: M, ...rest: Rest) => Entry {
  const made = new WeakMap<M, Entry>();
  return (message, ...rest) => {
    let known = made.get(message);
    if (known === undefined) made.set(message, (known = make(message, ...rest)));
    return known;
  };
}

export const localServiceEntry = cached((service: Service) => {
  const path = servicePath(service.namespace, service.name);
  return entry(SetNumber.ServicesSet, path, Service.encode(service).finish());
});

export const globalServiceEntry = cached((service: Service, hasher: Hasher) => {
  const value = ServiceInfo.encode({ hash: hasher.service(service), service }).finish();
  const path = `${service.namespace}|${service.name}||`;
  return entry(SetNumber.GlobalServiceInfos, path, value);
});

export const globalNodeEntry = cached((node: Node, hasher: Hasher) => {
  const value = NodeInfo.encode({ hash: hasher.node(node), node }).finish();
  return entry(SetNumber.GlobalNodeInfos, `|${node.name}||`, value);
});

/** Value of `EndpointInfo.hash`, computed once for an endpoint of the store. */
export function endpointHash(info: EndpointInfo, hasher: Hasher): bigint {
  if (info.hash === 0n) info.hash = hasher.endpointInfo(info);
  return info.hash;
}

/** An endpoint in its set of the global API. Not cached: most are sent only as part of a whole. */
export function endpointEntry(info: EndpointInfo, hasher: Hasher): Entry {
  const hash = hashText(endpointHash(info, hasher));
  const path = `${info.namespace}|${info.serviceName}|${info.sourceName}|${hash}`;
  return entry(SetNumber.GlobalEndpointInfos, path, EndpointInfo.encode(info).finish());
}

/** An endpoint as some nodes see it. */
export class LocalEndpoint implements Entry {
  /** The pod's name, or else a hash of the endpoint. */
  readonly key: string;
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
    const { hostname, ips, portOverrides } = this.#content;
    const { local, scopes, terminating } = this.#use;
    return { hostname, ips, local, portOverrides, scopes, terminating };
  }

  /** Built on each call: most are sent only as part of a whole. */
  get frame(): Buffer {
    return setFrame(SetNumber.EndpointsSet, this.#path, Endpoint.encode(this.endpoint).finish());
  }

  deletion(): Buffer {
    return deleteFrame(SetNumber.EndpointsSet, this.#path);
  }

  get #path(): string {
    const { namespace, serviceName } = this.#names;
    return `${namespace}/${serviceName}/${this.key}`;
  }

  /** Whether another one with the same key is equal. */
  equals(other: LocalEndpoint): boolean {
    if (this.#use !== other.#use) return false;
    // The content of a merged one has its use, too.
    return this.#content === other.#content || isEqual(this.endpoint, other.endpoint);
  }
}

type EndpointNames = Pick<EndpointInfo, 'namespace' | 'serviceName'>;

function entry(set: number, path: string, value: Uint8Array): Entry {
  return { frame: setFrame(set, path, value), deletion: () => deleteFrame(set, path) };
}

const ZONE_LABEL = 'topology.kubernetes.io/zone';

/** The zone in the node's topology, or else its zone label. */
export function zoneOf(node: Node): string {
  const zone = node.topology?.zone ?? '';
  return zone === '' ? (node.labels[ZONE_LABEL] ?? '') : zone;
}
