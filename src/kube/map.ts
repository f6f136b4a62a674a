/** The messages for Kubernetes objects. */
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
import type { EndpointSource } from '../store/global-transaction.ts';
import { ipSetOf, sortedUnique } from '../store/ip-set.ts';
import { type Matcher, pick } from './globs.ts';
import {
  type Json,
  type ObjectName,
  flag,
  isObject,
  list,
  object,
  text,
  texts,
  whole,
} from './json.ts';
import type { Resource } from './resource.ts';

/** Which labels and annotations of an object are passed on; undefined: none. */
export interface Forwarded {
  readonly labels: Matcher | undefined;
  readonly annotations: Matcher | undefined;
}

/** Kubernetes' default, three hours. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

/**
 * The message for a Kubernetes Service, by kpng's rules with two exceptions: an absent affinity timeout gets its
 * default (kpng crashes), and load-balancer addresses with ipMode `Proxy` are left out, as in kube-proxy, because
 * that traffic has to pass the load balancer.
 */
export function mapService(
  { namespace, name }: ObjectName,
  raw: Json,
  { labels, annotations }: Forwarded,
): Service {
  const metadata = object(raw['metadata']);
  const spec = object(raw['spec']);
  return {
    namespace,
    name,
    type: text(spec['type']),
    ips: serviceIPs(spec, object(raw['status'])),
    mapIP: false,
    ports: list(spec['ports']).map((port) => portMapping(object(port))),
    externalTrafficToLocal: spec['externalTrafficPolicy'] === 'Local',
    labels: pick(object(metadata['labels']), labels),
    annotations: pick(object(metadata['annotations']), annotations),
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
export function mapSlice({ namespace, name }: ObjectName, raw: Json): EndpointSource {
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
function conditionsOf(conditions: Json): EndpointConditions | undefined {
  const ready = flag(conditions['ready']);
  if (ready === undefined) return undefined;
  if (ready) return READY;
  const serving = flag(conditions['serving']) ?? false;
  return { ready, serving, terminating: flag(conditions['terminating']) ?? false };
}

function hintsOf(hints: unknown): TopologyHints | undefined {
  if (!isObject(hints)) return undefined;
  const names = (key: string): string[] =>
    sortedUnique(texts(list(hints[key]).map((hint) => object(hint)['name'])));
  return { zones: names('forZones'), nodes: names('forNodes') };
}

const ZONE = 'topology.kubernetes.io/zone';

export function mapNode({ name }: ObjectName, raw: Json, { labels, annotations }: Forwarded): Node {
  const metadata = object(raw['metadata']);
  const allLabels = object(metadata['labels']);
  return {
    name,
    labels: pick(allLabels, labels),
    annotations: pick(object(metadata['annotations']), annotations),
    // The zone counts even if its label is not passed on.
    topology: { node: name, zone: text(allLabels[ZONE]) },
  };
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
    decode: (_, raw) => ({ ineligible: ineligibleBy(raw), podNetworks: podNetworksOf(raw) }),
  };
}

function podNetworksOf(raw: Json): string[] {
  const texts = list(object(raw['spec'])['podCIDRs']).map(text);
  return texts.filter((each) => ipaddr.isValidCIDR(each));
}

/** By kube-proxy's rule: deleted, or tainted by the autoscaler. */
function ineligibleBy(raw: Json): Ineligible {
  if (text(object(raw['metadata'])['deletionTimestamp']) !== '') return 'deleted';
  const taints = list(object(raw['spec'])['taints']).map(object);
  return taints.some(({ key }) => key === TO_BE_DELETED) ? 'tainted' : undefined;
}
