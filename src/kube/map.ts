/** The watched resources, and the messages for their objects. */
import ipaddr from 'ipaddr.js';
import type {
  EndpointConditions,
  EndpointInfo,
  Node,
  TopologyHints,
} from '../api/generated/globalv1/api.ts';
import {
  type IPFilter,
  type PortMapping,
  type PortName,
  Protocol,
  type Service,
  type ServiceIPs,
} from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import type {
  EndpointSource,
  GlobalSet,
  GlobalStore,
  GlobalTransaction,
} from '../store/global-store.ts';
import { ipSetOf, sortedUnique } from '../store/ip-set.ts';
import type { KubeOrphans } from './events.ts';
import { compileGlobs } from './globs.ts';
import { type Json, isObject, list, nameOf, object, text, texts, whole } from './json.ts';
import { type Resource, type Selection, serviceSelector } from './resource.ts';

/** The labels and annotations of an object that are passed on, by patterns for their keys. */
export function forwarding(labels: readonly string[], annotations: readonly string[]) {
  const [pickLabels, pickAnnotations] = [compileGlobs(labels), compileGlobs(annotations)];
  return (raw: Json) => {
    const metadata = object(raw['metadata']);
    return {
      labels: pickLabels(object(metadata['labels'])),
      annotations: pickAnnotations(object(metadata['annotations'])),
    };
  };
}

type Forward = ReturnType<typeof forwarding>;

/** Kubernetes' default, three hours. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

/**
 * The message for a Kubernetes Service, by kpng's rules with two exceptions: an absent affinity timeout gets its
 * default (kpng crashes), and load-balancer addresses with ipMode `Proxy` are left out, as in kube-proxy, because
 * that traffic has to pass the load balancer.
 */
export function mapService(raw: Json, forward: Forward): Service {
  const spec = object(raw['spec']);
  return {
    ...nameOf(raw),
    type: text(spec['type']),
    ips: serviceIPs(spec, object(raw['status'])),
    mapIP: false,
    ports: list(spec['ports']).map((port) => portMapping(object(port))),
    externalTrafficToLocal: spec['externalTrafficPolicy'] === 'Local',
    ...forward(raw),
    ipFilters: ipFilters(spec),
    sessionAffinity: sessionAffinity(spec),
    internalTrafficToLocal: spec['internalTrafficPolicy'] === 'Local',
    healthCheckNodePort: whole(spec['healthCheckNodePort']),
  };
}

function serviceIPs(spec: Json, status: Json): ServiceIPs {
  let cluster = texts(spec['clusterIPs']);
  if (cluster.length === 0) cluster = texts([spec['clusterIP']]);
  const ingress = list(object(status['loadBalancer'])['ingress']).map(object);
  const balanced = ingress.filter((entry) => entry['ipMode'] !== 'Proxy');
  return {
    clusterIPs: ipSetOf(cluster),
    externalIPs: ipSetOf(texts(spec['externalIPs'])),
    headless: cluster.includes('None'),
    loadBalancerIPs:
      ingress.length === 0 ? undefined : ipSetOf(texts(balanced.map(({ ip }) => ip))),
  };
}

/** A map, since an object inherits properties such as `constructor`. */
const PROTOCOLS: ReadonlyMap<string, Protocol> = new Map([
  // The API's default.
  ['', Protocol.TCP],
  ['TCP', Protocol.TCP],
  ['UDP', Protocol.UDP],
  ['SCTP', Protocol.SCTP],
]);

function portMapping(port: Json): PortMapping {
  return {
    name: text(port['name']),
    protocol: PROTOCOLS.get(text(port['protocol'])) ?? Protocol.UnknownProtocol,
    port: whole(port['port']),
    nodePort: whole(port['nodePort']),
    targetPort: whole(port['targetPort']),
    targetPortName: text(port['targetPort']),
  };
}

/** Filters without target addresses apply to the load balancer's. */
function ipFilters(spec: Json): IPFilter[] {
  const sourceRanges = texts(spec['loadBalancerSourceRanges']).map((range) => range.trim());
  return sourceRanges.length === 0 ? [] : [{ targetIPs: undefined, sourceRanges }];
}

function sessionAffinity(spec: Json): Service['sessionAffinity'] {
  if (spec['sessionAffinity'] !== 'ClientIP') return undefined;
  const { timeoutSeconds } = object(object(spec['sessionAffinityConfig'])['clientIP']);
  const seconds = whole(timeoutSeconds);
  return {
    $case: 'clientIP',
    value: { timeoutSeconds: seconds > 0 ? seconds : DEFAULT_AFFINITY_SECONDS },
  };
}

const SERVICE_NAME = 'kubernetes.io/service-name';

/**
 * The endpoints of an EndpointSlice, by kpng's rules, for the service that its label names. A slice
 * without that label belongs to no service and has none.
 *
 * Unlike in kpng, the conditions `serving` and `terminating` are kept for an endpoint that is not
 * ready, hints for nodes are kept beside those for zones, and a port without a number (which means
 * every port) is left out instead of ending the program.
 */
export function mapSlice(raw: Json): EndpointSource {
  const { namespace, name } = nameOf(raw);
  const labels = object(object(raw['metadata'])['labels']);
  const serviceName = text(labels[SERVICE_NAME]);
  if (serviceName === '') return { namespace, name, serviceName: '', endpoints: [] };
  const portOverrides = portNames(raw);
  const endpoints = list(raw['endpoints']).map((item): EndpointInfo => {
    const endpoint = object(item);
    const target = object(endpoint['targetRef']);
    return {
      hash: 0n,
      namespace,
      sourceName: name,
      serviceName,
      endpoint: {
        hostname: text(endpoint['hostname']),
        ips: ipSetOf(texts(endpoint['addresses'])),
        local: false,
        // One shared list: messages of the state never change.
        portOverrides,
        scopes: undefined,
      },
      conditions: conditionsOf(object(endpoint['conditions'])),
      podName: target['kind'] === 'Pod' ? text(target['name']) : '',
      topology: { node: text(endpoint['nodeName']), zone: text(endpoint['zone']) },
      hints: hintsOf(endpoint['hints']),
    };
  });
  return { namespace, name, serviceName, endpoints };
}

function portNames(raw: Json): PortName[] {
  return list(raw['ports'])
    .map((port) => ({ name: text(object(port)['name']), port: whole(object(port)['port']) }))
    .filter(({ port }) => port > 0);
}

const READY: EndpointConditions = { ready: true, serving: false, terminating: false };

/** As in the API: unknown readiness means ready; then conditions are absent. */
function conditionsOf({ ready, serving, terminating }: Json): EndpointConditions | undefined {
  if (typeof ready !== 'boolean') return undefined;
  return ready ? READY : { ready, serving: serving === true, terminating: terminating === true };
}

function hintsOf(hints: unknown): TopologyHints | undefined {
  if (!isObject(hints)) return undefined;
  const names = (key: string): string[] =>
    sortedUnique(texts(list(hints[key]).map((hint) => object(hint)['name'])));
  return { zones: names('forZones'), nodes: names('forNodes') };
}

const ZONE = 'topology.kubernetes.io/zone';

export function mapNode(raw: Json, forward: Forward): Node {
  const { name } = nameOf(raw);
  // The zone counts even if its label is not passed on.
  const zone = text(object(object(raw['metadata'])['labels'])[ZONE]);
  return { name, ...forward(raw), topology: { node: name, zone } };
}

/** The taint that the cluster autoscaler sets before it removes a node. */
export const TO_BE_DELETED = 'ToBeDeletedByClusterAutoscaler';

/** Why a node should not get load-balancer traffic; undefined: it should. */
export type Ineligible = 'tainted' | 'deleted' | undefined;

/** The kept parts of the own node. */
export interface OwnNode {
  readonly ineligible: Ineligible;
  /** CIDR; empty where the network plugin does not use the field. */
  readonly podNetworks: readonly string[];
}

/** This node as a whole; of all others, only metadata is known. */
export function ownNode(name: string): Resource<OwnNode> {
  return {
    name: 'node',
    kind: 'Node',
    path: '/api/v1/nodes',
    fieldSelector: `metadata.name=${name}`,
    decode(raw) {
      const { podCIDRs, taints } = object(raw['spec']);
      // By kube-proxy's rule.
      const isDeleted = text(object(raw['metadata'])['deletionTimestamp']) !== '';
      const isTainted = list(taints).some((taint) => object(taint)['key'] === TO_BE_DELETED);
      return {
        ineligible: isDeleted ? 'deleted' : isTainted ? 'tainted' : undefined,
        podNetworks: texts(podCIDRs).filter((each) => ipaddr.isValidCIDR(each)),
      };
    },
  };
}

/** Applies the objects of one resource to the global state. */
export interface Feed<T> extends Resource<T> {
  readonly set: GlobalSet;
  /** Undefined: the object is gone. */
  change(transaction: GlobalTransaction, key: string, value: T | undefined): void;
}

export function serviceFeed(selection: Selection): Feed<Service> {
  const forward = forwarding(selection.serviceLabels, selection.serviceAnnotations);
  return {
    set: 'services',
    name: 'services',
    kind: 'Service',
    path: '/api/v1/services',
    labelSelector: serviceSelector(selection.proxyName),
    decode: (raw) => mapService(raw, forward),
    change: (transaction, key, service) => transaction.setService(key, service),
  };
}

export function sliceFeed(): Feed<EndpointSource> {
  /** The slices with endpoints, without them. */
  const known = new Map<string, EndpointSource>();
  return {
    set: 'endpoints',
    name: 'endpointslices',
    kind: 'EndpointSlice',
    path: '/apis/discovery.k8s.io/v1/endpointslices',
    decode: mapSlice,
    change(transaction, key, source) {
      const before = known.get(key);
      if (before !== undefined && before.serviceName !== source?.serviceName) {
        transaction.setSource(before);
      }
      if (source !== undefined) transaction.setSource(source);
      if (source === undefined || source.endpoints.length === 0) known.delete(key);
      else known.set(key, { ...source, endpoints: NONE });
    },
  };
}

const NONE: EndpointSource['endpoints'] = [];

/** For nodes, only metadata is requested: the rest is large and changes constantly. */
export function nodeFeed(selection: Selection): Feed<Node> {
  const forward = forwarding(selection.nodeLabels, selection.nodeAnnotations);
  return {
    set: 'nodes',
    name: 'nodes',
    kind: 'Node',
    path: '/api/v1/nodes',
    metadataOnly: true,
    decode: (raw) => mapNode(raw, forward),
    change: (transaction, name, node) => transaction.setNode(name, node),
  };
}

/** The EndpointSlices with endpoints whose service is missing. Reads the whole store. */
export function orphansIn({ services }: GlobalStore): KubeOrphans {
  let count = 0;
  let example: KubeOrphans['example'];
  for (const [key, { service, endpoints }] of services.current) {
    const [first] = endpoints;
    if (service !== undefined || first === undefined) continue;
    count += new Set(endpoints.map(({ sourceName }) => sourceName)).size;
    example ??= { slice: servicePath(first.namespace, first.sourceName), service: key };
  }
  return { count, example };
}
