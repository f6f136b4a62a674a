/** Writes state files as the `file` source reads them. */
import { renameSync, writeFileSync } from 'node:fs';
import { stringify } from 'yaml';

interface ServicePortDescription {
  readonly name: string;
  readonly protocol: 'TCP' | 'UDP';
  /** What clients use, at the service's address. */
  readonly port: number;
  /** What the endpoints listen on. */
  readonly targetPort: number;
}

export interface ServiceDescription {
  readonly namespace: string;
  readonly name: string;
  readonly clusterIP: string;
  readonly ports: readonly ServicePortDescription[];
  /** Clients stay with their endpoint until they have been away for this many seconds. */
  readonly affinitySeconds?: number;
  readonly endpoints: readonly { readonly name: string; readonly address: string }[];
}

/** The node that the state is made for; start the proxy with `--node-name` set to it. */
export const NODE_NAME = 'loopback';

/** Protocol numbers of the file format. */
const PROTOCOLS = { TCP: 1, UDP: 2 } as const;

/** The state as YAML. */
export function renderState(services: readonly ServiceDescription[]): string {
  return stringify({
    nodes: [{ name: NODE_NAME, topology: { node: NODE_NAME } }],
    services: services.map((service) => ({
      service: {
        namespace: service.namespace,
        name: service.name,
        type: 'ClusterIP',
        ips: { clusterips: { v4: [service.clusterIP] } },
        ports: service.ports.map(({ name, protocol, port, targetPort }) => ({
          name,
          protocol: PROTOCOLS[protocol],
          port,
          targetport: targetPort,
        })),
        sessionaffinity:
          service.affinitySeconds === undefined
            ? null
            : { clientip: { timeoutseconds: service.affinitySeconds } },
      },
      endpoints: service.endpoints.map((endpoint) => ({
        podname: endpoint.name,
        endpoint: {
          ips: { v4: [endpoint.address] },
          portoverrides: service.ports.map(({ name, targetPort }) => ({ name, port: targetPort })),
        },
        conditions: { ready: true },
        topology: { node: NODE_NAME },
      })),
    })),
  });
}

/** Replaces the file in one step, so that no reader sees half of it. On Windows, none may have it open: tries for a second. */
export function writeState(file: string, services: readonly ServiceDescription[]): void {
  const next = `${file}.next`;
  writeFileSync(next, renderState(services));
  for (let attempt = 1; ; attempt += 1) {
    try {
      renameSync(next, file);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EPERM' || attempt === 50) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
  }
}
