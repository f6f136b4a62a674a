/** Services of the tests, as items of the state file's `services` (docs/reference/state-file.md). */
import type { Machine } from './machine.ts';
import { ADDRESSES, NODE } from './network.ts';

export type StateService = Readonly<Record<string, unknown>>;

/** Addresses of `service`, which has port 80 of TCP and port 53 of UDP. */
export const CLUSTER = { v4: '10.96.0.10', v6: 'fd96::10' } as const;
export const EXTERNAL = { v4: '203.0.113.10', v6: '2001:db8:f::10' } as const;
export const LOAD_BALANCER = { v4: '203.0.113.20', v6: '2001:db8:f::20' } as const;
export const NODE_PORTS = { TCP: 30_080, UDP: 30_053 } as const;

/** Its TCP addresses: for clients of the cluster, and for others. */
export const INTERNAL = tcpPlaces(CLUSTER, 80);
export const OUTSIDE = [...tcpPlaces(EXTERNAL, 80), ...tcpPlaces(NODE, NODE_PORTS.TCP)];
/** Its UDP addresses: the cluster IP and the node port. */
export const DATAGRAMS = [...tcpPlaces(CLUSTER, 53), ...tcpPlaces(NODE, NODE_PORTS.UDP)].map(
  (place) => `${place}/UDP`,
);

/** Every place of it, by what it is. */
export const PLACES: Readonly<Record<string, readonly string[]>> = {
  'the cluster IP': places(CLUSTER, 80, 53),
  'the external IP': places(EXTERNAL, 80, 53),
  'the load-balancer IP': places(LOAD_BALANCER, 80, 53),
  'the node port': places(NODE, NODE_PORTS.TCP, NODE_PORTS.UDP),
  'the node port on the address for pods': places(
    { v4: NODE.pods4, v6: NODE.pods6 },
    NODE_PORTS.TCP,
    NODE_PORTS.UDP,
  ),
};

interface Addresses {
  readonly v4: string;
  readonly v6: string;
}

export function tcpPlaces({ v4, v6 }: Addresses, port: number): string[] {
  return [`${v4}:${port}`, `[${v6}]:${port}`];
}

export function places(addresses: Addresses, tcp: number, udp: number): string[] {
  return [
    ...tcpPlaces(addresses, tcp),
    ...tcpPlaces(addresses, udp).map((place) => `${place}/UDP`),
  ];
}

export type Pod = 'pod-a' | 'pod-b';

/** A pod with both of its addresses, ready and on the node `n1` by default. */
export function pod(name: Pod, { node = 'n1', ready = true } = {}): object {
  return {
    podname: name,
    endpoint: { ips: both(ADDRESSES[name]) },
    conditions: { ready },
    topology: { node },
  };
}

const both = ({ v4, v6 }: Addresses) => ({ v4: [v4], v6: [v6] });
const BOTH_PODS = [pod('pod-a'), pod('pod-b')];

/**
 * A service `demo/web` with both ports on a cluster IP, an external IP, a load-balancer IP and node ports, in both families.
 * `more` goes into the service.
 */
export function service(
  endpoints: readonly object[] = BOTH_PODS,
  more: Readonly<Record<string, unknown>> = {},
): StateService {
  return {
    service: {
      namespace: 'demo',
      name: 'web',
      type: 'LoadBalancer',
      ips: {
        clusterips: both(CLUSTER),
        externalips: both(EXTERNAL),
        loadbalancerips: both(LOAD_BALANCER),
      },
      ports: [
        { name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport: 8080 },
        { name: 'dns', protocol: 'UDP', port: 53, nodeport: NODE_PORTS.UDP, targetport: 8080 },
      ],
      ...more,
    },
    endpoints,
  };
}

/** A service with one port and one cluster IP. `addresses`: of its endpoints, by default that of `pod-a`. */
export function simple(
  name: string,
  address: string,
  port: `${'TCP' | 'UDP'} ${number}`,
  addresses: readonly string[] = [ADDRESSES['pod-a'].v4],
  more: { name?: string; nodeport?: number } = {},
): StateService {
  const [protocol, number] = port.split(' ');
  const endpoints = addresses.map((each) => ({
    endpoint: { ips: { v4: [each] } },
    topology: { node: 'n1' },
  }));
  return {
    service: {
      namespace: 'demo',
      name,
      type: 'ClusterIP',
      ips: { clusterips: { v4: [address] } },
      ports: [{ name: '', protocol, port: Number(number), targetport: 8080, ...more }],
    },
    endpoints,
  };
}

/** Asks at these addresses over and over until stopped; resolves with how often each answer came. */
export function ceaseless(
  machine: Machine,
  ...all: readonly string[]
): () => Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  const stop = new AbortController();
  const worker = async (first: number): Promise<void> => {
    for (let number = first; !stop.signal.aborted; number += 1) {
      const answer = (await machine.ask(all[number % all.length] ?? '')).split(' ')[0] ?? '';
      counts[answer] = (counts[answer] ?? 0) + 1;
    }
  };
  const workers = Promise.all([0, 1, 2, 3].map(worker));
  return async () => {
    stop.abort();
    await workers;
    return counts;
  };
}
