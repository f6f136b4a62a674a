/** A proxy with as many service ports and endpoints as are asked for, at rest. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { get } from '../../examples/support/http.ts';
import { startProxy, type ProxyProcess } from '../../examples/support/proxy-process.ts';
import type { ServiceDescription } from '../../examples/support/state-file.ts';
import { cpuSeconds, memory, settled } from '../support/process-usage.ts';
import { unusedServices } from '../support/services.ts';
import type { BackendPorts } from '../support/backend.ts';

const COLLECT = pathToFileURL(join(import.meta.dirname, 'collect.ts')).href;

export const BACKEND_HOST = '127.78.3.1';
/** The service that is used. */
export const SERVICE = { host: '127.79.255.1', port: 8080 } as const;

/** Descriptors of the proxy that connections and sessions leave alone; by default that is 256. */
export const RESERVED = 64;

export interface SceneOptions {
  readonly engine: 'node' | 'linux';
  /** Default: one. */
  readonly workers?: number;
  readonly backend: BackendPorts;
  /** Of the service that is used. */
  readonly protocol: 'TCP' | 'UDP';
  /** TCP service ports beside the one that is used. */
  readonly servicePorts: number;
  /** Further endpoints of the service that is used, without a listener. */
  readonly endpoints?: number;
}

/** Bytes. */
export interface RestMemory {
  /** Of the process, its own: heaps, stacks, buffers, and what the allocator keeps for later. */
  readonly anonymous: number;
  /** What lives in the main thread: on the heap of JavaScript, and outside of it because of that. */
  readonly heap: number;
}

export interface Scene {
  readonly proxy: ProxyProcess;
  /** After garbage was collected in its main thread. */
  memory(): Promise<RestMemory>;
  /** CPU so far. Seconds. */
  cpu(): number;
  close(): Promise<void>;
}

export async function openScene(options: SceneOptions): Promise<Scene> {
  // Inherited by the proxy.
  process.env['NODE_OPTIONS'] = `--expose-gc --import=${COLLECT}`;
  const proxy = await startProxy({
    services: [used(options), ...unusedServices(options.servicePorts)],
    args: [
      `--engine=${options.engine}`,
      `--workers=${options.workers ?? 1}`,
      `--reserved-descriptors=${RESERVED}`,
      // Sessions have to stay until they are counted.
      '--udp-idle-timeout=30m',
      // Another proxy of this machine may have the usual one.
      '--admin-socket=',
    ],
    within: 120_000,
  });
  return {
    proxy,
    async memory() {
      process.kill(proxy.pid, 'SIGUSR2');
      const anonymous = await settled(() => memory(proxy.pid)?.anonymous ?? 0);
      return { anonymous, heap: heapIn((await get(proxy.metricsUrl)).body) };
    },
    cpu: () => cpuSeconds(proxy.pid) ?? 0,
    close: async () => void (await proxy.stop()),
  };
}

/** From the proxy's own page of metrics. */
function heapIn(page: string): number {
  const value = (name: string): number =>
    Number(new RegExp(`^${name} (\\S+)`, 'm').exec(page)?.[1] ?? Number.NaN);
  return value('nodejs_heap_size_used_bytes') + value('nodejs_external_memory_bytes');
}

function used({ backend, protocol, endpoints = 0 }: SceneOptions): ServiceDescription {
  return {
    namespace: 'rest',
    name: 'used',
    clusterIP: SERVICE.host,
    ports: [
      {
        name: 'echo',
        protocol,
        port: SERVICE.port,
        targetPort: protocol === 'TCP' ? backend.tcpEcho : backend.echo,
      },
    ],
    endpoints: [
      { name: 'pod', address: BACKEND_HOST },
      ...Array.from({ length: endpoints }, (_, n) => ({
        name: `pod-${n}`,
        address: `127.${80 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`,
      })),
    ],
  };
}
