/** The ways from client to backend that are compared on loopback: each at an address of its own, on the same ports. */
import { join } from 'node:path';
import { portNear } from '../../examples/support/ports.ts';
import { startProxy } from '../../examples/support/proxy-process.ts';
import { writeState } from '../../examples/support/state-file.ts';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import type { Peer, PeerKind } from '../data/peers/peer.ts';
import { start } from '../support/worker.ts';
import type { BackendSettings } from './backend.ts';
import type { PipeProxySettings } from './pipe-proxy.ts';

export interface LoopbackPorts {
  /** Sends without end. */
  readonly source: number;
  /** Takes what it gets. */
  readonly sink: number;
  /** Answers requests with a short page. */
  readonly http: number;
  /** UDP: sends each datagram back. */
  readonly echo: number;
}

const BACKEND = '127.78.1.1';
const SERVICE = '127.78.0.10';
const PIPE = '127.78.0.20';

/** Ports that are free at all of the addresses. */
export async function loopbackPorts(): Promise<LoopbackPorts> {
  const near = (protocol: 'TCP' | 'UDP', port: number): Promise<number> =>
    portNear(protocol, port, [BACKEND, SERVICE, PIPE]);
  const source = await near('TCP', 18_100);
  const sink = await near('TCP', source + 1);
  const http = await near('TCP', sink + 1);
  return { source, sink, http, echo: await near('UDP', 18_100) };
}

/** A peer, and how to open it. */
interface LoopbackPeer extends Pick<PeerKind, 'word' | 'title' | 'udp'> {
  readonly open: () => Promise<Peer>;
}

/** All of them; the backend first. */
export function loopbackPeers(ports: LoopbackPorts): readonly LoopbackPeer[] {
  const script = (name: string): string => join(import.meta.dirname, name);
  const open = async (
    address: string,
    name: string,
    settings: BackendSettings | PipeProxySettings,
    counts: boolean,
  ): Promise<Peer> => {
    const running = await start<object>(script(name), settings);
    return {
      address,
      pids: () => (counts ? [running.pid] : []),
      check: () => undefined,
      close: () => running.kill(),
    };
  };
  return [
    {
      word: 'direct',
      title: 'direct',
      udp: true,
      open: () => open(BACKEND, 'backend.ts', { host: BACKEND, ports }, false),
    },
    { word: 'ours', title: 'kpng-userspace', udp: true, open: () => ours(ports) },
    {
      word: 'pipe',
      title: 'pipe()',
      udp: true,
      open: () => open(PIPE, 'pipe-proxy.ts', { host: PIPE, backend: BACKEND, ports }, true),
    },
  ];
}

/** This project, run as users run it. */
async function ours(ports: LoopbackPorts): Promise<Peer> {
  const folder = tempFolder('bench');
  const input = join(folder.path, 'state.yaml');
  writeState(input, [
    {
      namespace: 'bench',
      name: 'backend',
      clusterIP: SERVICE,
      ports: Object.entries(ports).map(([name, port]) => ({
        name,
        protocol: name === 'echo' ? 'UDP' : 'TCP',
        port,
        targetPort: port,
      })),
      endpoints: [{ name: 'backend', address: BACKEND }],
    },
  ]);
  try {
    const proxy = await startProxy({ input });
    return {
      address: SERVICE,
      pids: () => [proxy.pid],
      check: () => undefined,
      async close() {
        await proxy.stop();
        folder.remove();
      },
    };
  } catch (error) {
    folder.remove();
    throw error;
  }
}
