import {
  type IPFilter,
  type PortMapping,
  Protocol,
  type Service,
  type ServiceIPs,
} from '../api/generated/localv1/api.ts';
import { ipSetOf } from '../store/ip-set.ts';
import { type Matcher, pick } from './globs.ts';
import { type Json, type ObjectName, list, object, text, texts, whole } from './json.ts';

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
