/** Pools of the `linux` engine, whose workers a test can end. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { dataPlaneFault } from '../../src/proxysocket/events.ts';
import { Pool, type PoolOptions } from '../../src/proxysocket/pool/pool.ts';
import type { EndpointSpec, EngineChange, ServicePortSpec } from '../../src/proxysocket/spec.ts';
import { order } from './crashing-worker.ts';
import { collect, type Teardown } from './sockets.ts';
import { tcpClient } from './tcp-peers.ts';
import { portOf, tcpSpec } from './tcp-rig.ts';
import { until } from './until.ts';

export const module = new URL('crashing-worker.ts', import.meta.url);
/** Hardly any time between two workers. */
const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };

export const WEB = 'test/web:http';

/** Client addresses that the kernel spreads over two workers. */
export const CLIENTS = Array.from({ length: 24 }, (_, n) => `127.0.3.${n + 1}`);

export const set = (spec: ServicePortSpec): EngineChange => ({ kind: 'set', spec });
export const remove = (name = WEB): EngineChange => ({ kind: 'remove', name });
export const endpoints = (...list: readonly EndpointSpec[]): EngineChange => ({
  kind: 'endpoints',
  name: WEB,
  endpoints: list,
});

/** A pool, destroyed at the end of the test. */
export async function poolOf(t: Teardown, options: PoolOptions = {}): Promise<Pool> {
  order(0);
  const pool = await Pool.start({ module, backoff, ...options });
  t.teardown(() => pool.destroy());
  return pool;
}

/** The same with a TCP service port. */
export async function serving(
  t: Teardown,
  list: readonly EndpointSpec[],
  options: PoolOptions = {},
) {
  const pool = await poolOf(t, options);
  await pool.apply([set(tcpSpec(list))]);
  const counters = (name = WEB) => pool.snapshot(new Set([name]))[0]?.counters;
  return { pool, port: portOf(pool), counters };
}

/** Lets worker after worker die, each as soon as it serves; resolves with all faults when they are dead. */
export async function crash(t: Teardown, pool: Pool, times = 1) {
  const faults = collect(t, dataPlaneFault);
  for (let crashes = 1; crashes <= times; crashes += 1) {
    order(-1);
    // Wakes it, and is carried out by the one after it.
    const woken = pool.apply([]).catch(() => undefined);
    await until(() => faults.filter(({ what }) => what === 'worker-lost').length === crashes);
    if (crashes < times) await woken;
  }
  return faults;
}

/** A connection from each address, that has been answered once. */
export async function connections(
  t: Teardown,
  port: number,
  clients: readonly string[] = CLIENTS,
): Promise<Socket[]> {
  return Promise.all(
    clients.map(async (localAddress) => {
      const socket = await tcpClient(t, port, '127.0.0.1', localAddress);
      socket.write('x');
      await once(socket, 'data');
      return socket;
    }),
  );
}
