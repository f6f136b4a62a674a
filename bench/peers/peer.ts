import { join } from 'node:path';
import { startProxy } from '../../examples/support/proxy-process.ts';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { writeState } from '../../examples/support/state-file.ts';
import { start } from '../support/worker.ts';
import type { BackendAnswer, BackendSettings } from './backend.ts';
import type { PipeProxyAnswer, PipeProxySettings } from './pipe-proxy.ts';
import { TARGET_NAMES, type Targets } from './targets.ts';

/** A way from the load to the backend. */
export interface Peer {
  readonly name: string;
  readonly targets: Targets;
  /** The process whose CPU counts; undefined when there is none in between. */
  readonly pid: number | undefined;
  close(): Promise<void>;
}

const BACKEND_HOST = '127.78.1.1';
const SERVICE_HOST = '127.78.0.10';
const PIPE_HOST = '127.78.0.20';

/** The backend, without anything before it. */
export async function direct(): Promise<Peer> {
  const script = join(import.meta.dirname, 'backend.ts');
  const host: BackendSettings = { host: BACKEND_HOST };
  const backend = await start<BackendAnswer>(script, host);
  const { targets } = backend.answer;
  return { name: 'direct', targets, pid: undefined, close: () => backend.kill() };
}

/** The naive proxy. */
export async function pipe(targets: Targets): Promise<Peer> {
  const script = join(import.meta.dirname, 'pipe-proxy.ts');
  const settings: PipeProxySettings = { host: PIPE_HOST, targets };
  const proxy = await start<PipeProxyAnswer>(script, settings);
  return {
    name: 'pipe()',
    targets: proxy.answer.targets,
    pid: proxy.pid,
    close: () => proxy.kill(),
  };
}

/** This project, run as users run it. */
export async function ours(targets: Targets): Promise<Peer> {
  const folder = tempFolder('bench');
  const input = join(folder.path, 'state.yaml');
  writeState(input, [
    {
      namespace: 'bench',
      name: 'backend',
      clusterIP: SERVICE_HOST,
      ports: TARGET_NAMES.map((name) => ({
        name,
        protocol: name === 'echo' ? 'UDP' : 'TCP',
        port: targets[name].port,
        targetPort: targets[name].port,
      })),
      endpoints: [{ name: 'backend', address: BACKEND_HOST }],
    },
  ]);
  try {
    const proxy = await startProxy({ input });
    const moved = TARGET_NAMES.map(
      (name) => [name, { host: SERVICE_HOST, port: targets[name].port }] as const,
    );
    return {
      name: 'kpng-userspace',
      targets: Object.fromEntries(moved) as unknown as Targets,
      pid: proxy.pid,
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
