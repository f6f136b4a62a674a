/** Three endpoints in processes of their own and the proxy before them. */
import { join } from 'node:path';
import { portNear } from '../../examples/support/ports.ts';
import { startProxy } from '../../examples/support/proxy-process.ts';
import type { ServiceDescription } from '../../examples/support/state-file.ts';
import type { EndpointSettings } from '../peers/endpoint.ts';
import { startScript, type Dialogue } from '../support/dialogue.ts';

const SERVICE = '127.78.3.10';
export const ENDPOINTS = ['alder', 'birch', 'cedar'] as const;
type EndpointName = (typeof ENDPOINTS)[number];

export interface IntegrityScene {
  readonly host: string;
  readonly ports: { readonly http: number; readonly echo: number };
  /** Kills an endpoint's process and resolves when it is gone. */
  kill(name: EndpointName): Promise<void>;
  close(): Promise<void>;
}

/** Starts all of it; ends what was started if anything fails. */
export async function openIntegrityScene(): Promise<IntegrityScene> {
  const endpoints = new Map<EndpointName, Dialogue>();
  const close = async (): Promise<void> => {
    await Promise.all([...endpoints.values()].map((endpoint) => endpoint.kill()));
  };
  try {
    const addresses = ENDPOINTS.map((name, index) => ({ name, address: `127.78.3.${index + 1}` }));
    const all = [SERVICE, ...addresses.map(({ address }) => address)];
    const ports = {
      http: await portNear('TCP', 8080, all),
      echo: await portNear('UDP', 5300, all),
    };
    const script = join(import.meta.dirname, '../peers/endpoint.ts');
    for (const { name, address } of addresses) {
      const settings: EndpointSettings = { name, address, ports };
      const program = startScript(script, settings);
      endpoints.set(name, program);
      await program.ask({});
    }
    const service: ServiceDescription = {
      namespace: 'integrity',
      name: 'trees',
      clusterIP: SERVICE,
      ports: [
        { name: 'http', protocol: 'TCP', port: ports.http, targetPort: ports.http },
        { name: 'echo', protocol: 'UDP', port: ports.echo, targetPort: ports.echo },
      ],
      endpoints: addresses,
    };
    const proxy = await startProxy({ services: [service] });
    return {
      host: SERVICE,
      ports,
      async kill(name) {
        await endpoints.get(name)?.kill();
      },
      async close() {
        await proxy.stop();
        await close();
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}
