/**
 * Objects of the Kubernetes API, written as short as a test can bear, in the form in which a server
 * sends them. The store adds what every object has (uid, version, managed fields).
 */

/** What the fake server knows of an object; the rest passes through it as it is. */
export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: {
    name: string;
    namespace?: string;
    uid?: string;
    resourceVersion?: string;
    creationTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    [field: string]: unknown;
  };
  [field: string]: unknown;
}

interface ServiceParts extends Pick<KubeObject['metadata'], 'labels' | 'annotations'> {
  /** Fields that differ from those of a ClusterIP service with one port. */
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
}

/** A ClusterIP service with one port. `key` is `namespace/name`. */
export function service(key: string, clusterIP: string, parts: ServiceParts = {}): KubeObject {
  const { spec, status = { loadBalancer: {} }, ...metadata } = parts;
  const { namespace, name } = nameOf(key);
  return {
    metadata: { namespace, name, ...metadata },
    spec: {
      ports: [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 8080 }],
      selector: { app: name },
      clusterIP,
      clusterIPs: [clusterIP],
      type: 'ClusterIP',
      sessionAffinity: 'None',
      ipFamilies: [clusterIP.includes(':') ? 'IPv6' : 'IPv4'],
      ipFamilyPolicy: 'SingleStack',
      internalTrafficPolicy: 'Cluster',
      ...spec,
    },
    status,
  };
}

export interface EndpointParts {
  /** Name of the pod behind it; null: none. Default: made of the address. */
  pod?: string | null;
  /** Of the endpoint itself, such as `conditions` and `nodeName`. */
  [field: string]: unknown;
}

/** One endpoint of a slice, ready and on node-a by default. */
export function endpoint(address: string, parts: EndpointParts = {}): Record<string, unknown> {
  const { pod = `pod-${address.replaceAll(/[.:]/g, '-')}`, ...rest } = parts;
  return {
    addresses: [address],
    conditions: { ready: true, serving: true, terminating: false },
    nodeName: 'node-a',
    ...(pod !== null && { targetRef: { kind: 'Pod', namespace: 'demo', name: pod, uid: pod } }),
    ...rest,
  };
}

export interface SliceParts {
  /** Default: the service that the name begins with: `web-abcde` is of `web`. Null: no label. */
  service?: string | null;
  ports?: unknown[];
}

/** An EndpointSlice. `key` is `namespace/name`. */
export function slice(key: string, endpoints: unknown[], parts: SliceParts = {}): KubeObject {
  const name = nameOf(key);
  const owner = parts.service === undefined ? name.name.replace(/-[^-]*$/, '') : parts.service;
  return {
    addressType: 'IPv4',
    metadata: {
      ...name,
      labels: {
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
        ...(owner !== null && { 'kubernetes.io/service-name': owner }),
      },
    },
    endpoints,
    ports: parts.ports ?? [{ name: 'http', protocol: 'TCP', port: 8080 }],
  };
}

/** A node with its name as host name label, and a zone when it is given. */
export function node(name: string, zone = '', address = '192.0.2.10'): KubeObject {
  return {
    metadata: {
      name,
      labels: {
        'kubernetes.io/hostname': name,
        'kubernetes.io/os': 'linux',
        ...(zone !== '' && { 'topology.kubernetes.io/zone': zone }),
      },
    },
    spec: { podCIDR: '10.244.1.0/24', podCIDRs: ['10.244.1.0/24'] },
    status: {
      addresses: [
        { type: 'InternalIP', address },
        { type: 'Hostname', address: name },
      ],
      conditions: [{ type: 'Ready', status: 'True', reason: 'KubeletReady' }],
      images: [{ names: ['registry.example/pause:3.9'], sizeBytes: 321520 }],
    },
  };
}

function nameOf(key: string): { namespace: string; name: string } {
  const slash = key.indexOf('/');
  if (slash <= 0) throw new Error(`not a namespace and a name: ${key}`);
  return { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

/** The resources that the fake server serves. */
export const RESOURCES = {
  services: { apiVersion: 'v1', kind: 'Service' },
  endpoints: { apiVersion: 'v1', kind: 'Endpoints' },
  nodes: { apiVersion: 'v1', kind: 'Node' },
  endpointslices: { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice' },
} as const;

export type Resource = keyof typeof RESOURCES;

/** What a path of the API names. */
export interface Place {
  readonly resource: Resource;
  readonly name: string | undefined;
}

/** Reads `/api/v1/nodes/node-a` and the like, without namespaces. Undefined: nothing is there. */
export function readPath(path: string): Place | undefined {
  const [, core, group = core, found = '', name] =
    /^\/(?:api\/(v1)|apis\/([^/]+\/[^/]+))\/([^/]+)(?:\/([^/]+))?$/.exec(path) ?? [];
  if (!Object.hasOwn(RESOURCES, found)) return undefined;
  const resource = found as Resource;
  return RESOURCES[resource].apiVersion === group ? { resource, name } : undefined;
}
