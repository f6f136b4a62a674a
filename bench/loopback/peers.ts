/** The ways from client to backend that are compared on loopback: each at an address of its own, on the same ports. */
import { join } from 'node:path';
import { portNear } from '../../examples/support/ports.ts';
import { startProxy } from '../../examples/support/proxy-process.ts';
import type { ServiceDescription } from '../../examples/support/state-file.ts';
import type { Peer } from '../data/peers/peer.ts';
import { BACKEND, type BackendPorts, type BackendSettings } from '../support/backend.ts';
import { startScript } from '../support/dialogue.ts';
import type { PipeProxySettings } from './pipe-proxy.ts';

export type LoopbackPorts = Omit<BackendPorts, 'tcpEcho'>;

const ENDPOINT = '127.78.1.1';
const SERVICE = '127.78.0.10';
const PIPE = '127.78.0.20';

/** Ports that are free at all of the addresses. */
export async function loopbackPorts(): Promise<LoopbackPorts> {
  const near = (protocol: 'TCP' | 'UDP', port: number): Promise<number> =>
    portNear(protocol, port, [ENDPOINT, SERVICE, PIPE]);
  const source = await near('TCP', 18_100);
  const sink = await near('TCP', source + 1);
  const http = await near('TCP', sink + 1);
  return { source, sink, http, echo: await near('UDP', 18_100) };
}

async function startServer(
  script: string,
  settings: BackendSettings | PipeProxySettings,
): Promise<Peer> {
  const program = startScript(script, settings);
  await program.ask({});
  return {
    address: settings.host,
    // No proxy: that of the backend does not count.
    pids: () => (script === BACKEND ? [] : [program.pid]),
    check: () => undefined,
    close: () => program.kill(),
  };
}

/** All of them with how to open each; the backend first. */
export function loopbackPeers(ports: LoopbackPorts) {
  const pipe = join(import.meta.dirname, 'pipe-proxy.ts');
  return [
    {
      kind: { word: 'direct', title: 'direct', udp: true },
      open: () => startServer(BACKEND, { host: ENDPOINT, ports }),
    },
    { kind: { word: 'ours', title: 'kpng-userspace', udp: true }, open: () => ours(ports) },
    {
      kind: { word: 'pipe', title: 'pipe()', udp: true },
      open: () => startServer(pipe, { host: PIPE, backend: ENDPOINT, ports }),
    },
  ];
}

/** This project, run as users run it. */
async function ours(ports: LoopbackPorts): Promise<Peer> {
  const backend: ServiceDescription = {
    namespace: 'bench',
    name: 'backend',
    clusterIP: SERVICE,
    ports: Object.entries(ports).map(([name, port]) => ({
      name,
      protocol: name === 'echo' ? 'UDP' : 'TCP',
      port,
      targetPort: port,
    })),
    endpoints: [{ name: 'backend', address: ENDPOINT }],
  };
  const proxy = await startProxy({ services: [backend] });
  return {
    address: SERVICE,
    pids: () => [proxy.pid],
    check: () => undefined,
    close: async () => void (await proxy.stop()),
  };
}
