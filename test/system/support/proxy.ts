import { type Machine, ScriptProcess } from './machine.ts';
import { type Network, ADDRESSES, NODE } from './network.ts';
import type { StateService } from './portals-under-test.ts';
import type { ProxyHandlers, ProxyOptions, WantedService } from './proxy-main.ts';

export type { WantedService } from './proxy-main.ts';

/** An event of a portal, as its channel reports it. */
export interface PortalEvent {
  readonly channel: string;
  readonly reason?: string;
  readonly code?: string;
  readonly message?: string;
  readonly removed?: number;
}

/** The proxy on the node of a test network, as a process of its own. */
export class Proxy {
  readonly #process: ScriptProcess<ProxyHandlers>;

  constructor(network: Network, options: ProxyOptions = {}) {
    this.#process = new ScriptProcess(network, 'node', 'proxy-main.ts', [JSON.stringify(options)]);
  }

  /** Events of the portal, in order. */
  get events(): readonly PortalEvent[] {
    return this.#process.events as PortalEvent[];
  }

  /** Reasons of the writes so far: `start`, `change`, `repair`. */
  get writes(): readonly string[] {
    return this.events
      .filter(({ channel }) => channel.endsWith('portal:written'))
      .map(({ reason = '' }) => reason);
  }

  /** Resolves when the change is in place. */
  sync(
    set: Record<string, WantedService>,
    remove: readonly string[] = [],
  ): Promise<{ problems: string[] }> {
    return this.#process.call('sync', set, remove);
  }

  /** Ends a worker of the engine as a crash would. */
  async loseWorker(index: number): Promise<void> {
    await this.#process.call('loseWorker', index);
  }

  /** CPU time so far, in microseconds. */
  usage(): Promise<NodeJS.CpuUsage> {
    return this.#process.call('usage');
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** `SIGKILL` by default: it gets no chance to tidy up. */
  kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    return this.#process.end(signal);
  }
}

/** Services for the state file. */

/** Address of the services of the parity tests. */
export const CLUSTER = { v4: '10.96.7.10', v6: 'fd96::7:10' } as const;
export const EXTERNAL = { v4: '203.0.113.77', v6: '2001:db8:f::77' } as const;
export const NODE_PORTS = { TCP: 30_777, UDP: 30_753 } as const;

/** TCP addresses of that service: for clients of the cluster, and for others. */
export const INTERNAL = [`${CLUSTER.v4}:80`, `[${CLUSTER.v6}]:80`];
export const OUTSIDE = [
  `${EXTERNAL.v4}:80`,
  `[${EXTERNAL.v6}]:80`,
  `${NODE.v4}:${NODE_PORTS.TCP}`,
  `[${NODE.v6}]:${NODE_PORTS.TCP}`,
];

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

/** Addresses of the services of the tests. */
export const SERVICE = {
  cluster: { v4: '10.96.0.10', v6: 'fd96::10' },
  external: { v4: '203.0.113.10', v6: '2001:db8:f::10' },
  loadBalancer: { v4: '203.0.113.20', v6: '2001:db8:f::20' },
  nodePort: { TCP: 30_080, UDP: 30_053 },
} as const;

/** Every place of the service, by what it is. */
export const PLACES: Record<string, readonly string[]> = {
  'the cluster IP': places(SERVICE.cluster, 80, 53),
  'the external IP': places(SERVICE.external, 80, 53),
  'the load-balancer IP': places(SERVICE.loadBalancer, 80, 53),
  'the node port': places(NODE, SERVICE.nodePort.TCP, SERVICE.nodePort.UDP),
  'the node port on the address for pods': places(
    { v4: NODE.pods4, v6: NODE.pods6 },
    SERVICE.nodePort.TCP,
    SERVICE.nodePort.UDP,
  ),
};

export function places({ v4, v6 }: { v4: string; v6: string }, tcp: number, udp: number): string[] {
  return [`${v4}:${tcp}`, `[${v6}]:${tcp}`, `${v4}:${udp}/UDP`, `[${v6}]:${udp}/UDP`];
}

/** Asks often enough that both pods have had their turn. */
export async function reachesBoth(machine: Machine, place: string): Promise<string> {
  const answers = await Promise.all([1, 2, 3, 4].map(() => machine.ask(place)));
  const pods = new Set(answers.map((answer) => answer.split(' ')[0] ?? ''));
  return [...pods].sort().join(' ');
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

const BOTH = [
  ADDRESSES['pod-a'].v4,
  ADDRESSES['pod-a'].v6,
  ADDRESSES['pod-b'].v4,
  ADDRESSES['pod-b'].v6,
];

/** Port 80 of TCP and 53 of UDP, on every kind of address, in both families. */
export function everywhere(endpoints: WantedService['endpoints'] = BOTH): WantedService {
  const { cluster, external, loadBalancer, nodePort } = SERVICE;
  const both = ({ v4, v6 }: { v4: string; v6: string }) => ({ v4: [v4], v6: [v6] });
  return {
    service: {
      type: 'LoadBalancer',
      ips: {
        clusterIPs: both(cluster),
        externalIPs: both(external),
        loadBalancerIPs: both(loadBalancer),
      },
      ports: [
        { name: 'web', protocol: 1, port: 80, nodePort: nodePort.TCP, targetPort: 8080 },
        { name: 'dns', protocol: 2, port: 53, nodePort: nodePort.UDP, targetPort: 8080 },
      ],
    },
    endpoints,
  };
}

/** One port with one cluster IP. */
export function simple(
  address: string,
  port: `${'TCP' | 'UDP'} ${number}`,
  endpoints: readonly string[] = [ADDRESSES['pod-a'].v4],
  more: { name?: string; nodePort?: number } = {},
): WantedService {
  const [protocol, number] = port.split(' ');
  const family = address.includes(':') ? 'v6' : 'v4';
  const wire = protocol === 'TCP' ? 1 : 2;
  return {
    service: {
      type: 'ClusterIP',
      ips: { clusterIPs: { [family]: [address] } },
      ports: [{ name: '', protocol: wire, port: Number(number), targetPort: 8080, ...more }],
    },
    endpoints,
  };
}
