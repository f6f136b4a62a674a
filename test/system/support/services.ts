import type { WantedService } from './proxy-main.ts';
import { ADDRESSES } from './network.ts';

/** Addresses of the services of the tests. */
export const SERVICE = {
  cluster: { v4: '10.96.0.10', v6: 'fd96::10' },
  external: { v4: '203.0.113.10', v6: '2001:db8:f::10' },
  loadBalancer: { v4: '203.0.113.20', v6: '2001:db8:f::20' },
  nodePort: { TCP: 30_080, UDP: 30_053 },
} as const;

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
