/** Services, endpoints and nodes as the Kubernetes API has them. */
import { ENDPOINT_ADDRESSES, ENDPOINT_PORT, NODE_ADDRESS } from '../network.ts';
import { NAMESPACE, SERVICE_PORT, serviceAddress, serviceName } from '../services.ts';

/** What all objects have. */
export interface ApiObject {
  readonly kind: 'Service' | 'Endpoints' | 'Node';
  readonly apiVersion: 'v1';
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid: string;
    readonly resourceVersion?: string;
  };
  /** What the kind has besides. */
  readonly [field: string]: unknown;
}

export const NODE_NAME = 'bench-node';

export function apiNode(): ApiObject {
  return {
    kind: 'Node',
    apiVersion: 'v1',
    metadata: { name: NODE_NAME, uid: `node-${NODE_NAME}` },
    spec: {},
    status: { addresses: [{ type: 'InternalIP', address: NODE_ADDRESS }] },
  };
}

/** The n-th service. */
export function apiService(n: number): ApiObject {
  const name = serviceName(n);
  const clusterIP = serviceAddress(n);
  const port = {
    name: 'http',
    protocol: 'TCP',
    port: SERVICE_PORT,
    targetPort: ENDPOINT_PORT,
  };
  return {
    kind: 'Service',
    apiVersion: 'v1',
    metadata: { name, namespace: NAMESPACE, uid: `service-${name}` },
    spec: { type: 'ClusterIP', clusterIP, ports: [port], sessionAffinity: 'None' },
  };
}

/** Its endpoints. */
export function apiEndpoints(
  n: number,
  endpoints: readonly string[] = ENDPOINT_ADDRESSES,
): ApiObject {
  const name = serviceName(n);
  const addresses = endpoints.map((ip) => ({ ip }));
  const ports = [{ name: 'http', port: ENDPOINT_PORT, protocol: 'TCP' }];
  return {
    kind: 'Endpoints',
    apiVersion: 'v1',
    metadata: { name, namespace: NAMESPACE, uid: `endpoints-${name}` },
    subsets: [{ addresses, ports }],
  };
}
