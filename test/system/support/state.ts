/** Services for the state file. */
import { ADDRESSES } from './network.ts';
import type { StateService } from './program.ts';

/** Address of the services of the parity tests. */
export const CLUSTER = { v4: '10.96.7.10', v6: 'fd96::7:10' } as const;
export const EXTERNAL = { v4: '203.0.113.77', v6: '2001:db8:f::77' } as const;
export const NODE_PORTS = { TCP: 30_777, UDP: 30_753 } as const;

export type Pod = 'pod-a' | 'pod-b';

export interface EndpointParts {
  readonly node?: string;
  readonly ready?: boolean;
  /** Its port for the service ports of these names. Default: the target port for all. */
  readonly ports?: Readonly<Record<string, number>>;
}

/** A pod with both of its addresses, ready and on the node `n1` by default. */
export function pod(name: Pod, { node = 'n1', ready = true, ports }: EndpointParts = {}): object {
  const { v4, v6 } = ADDRESSES[name];
  const overrides = Object.entries(ports ?? {}).map(([port, number]) => ({
    name: port,
    port: number,
  }));
  return {
    podname: name,
    endpoint: {
      ips: { v4: [v4], v6: [v6] },
      ...(ports !== undefined && { portoverrides: overrides }),
    },
    conditions: { ready },
    topology: { node },
  };
}

/**
 * A service with port 80 of TCP and port 53 of UDP on a cluster IP, an external IP and a node port, in both
 * families. `more` goes into the service.
 */
export function service(
  endpoints: readonly object[],
  more: Readonly<Record<string, unknown>> = {},
): StateService {
  const both = ({ v4, v6 }: { v4: string; v6: string }) => ({ v4: [v4], v6: [v6] });
  return {
    service: {
      name: 'parity',
      type: 'NodePort',
      ips: { clusterips: both(CLUSTER), externalips: both(EXTERNAL) },
      ports: [
        { name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport: 8080 },
        { name: 'dns', protocol: 'UDP', port: 53, nodeport: NODE_PORTS.UDP, targetport: 8080 },
      ],
      ...more,
    },
    endpoints,
  };
}
