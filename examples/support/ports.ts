import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Whether the port is free there. Rejects when nothing can listen there at all. */
async function isFree(protocol: 'TCP' | 'UDP', address: string, port: number): Promise<boolean> {
  const held =
    protocol === 'UDP'
      ? createSocket('udp4').bind({ port, address, exclusive: true })
      : createServer().listen({ port, host: address, exclusive: true });
  try {
    await once(held, 'listening');
    held.close();
    await once(held, 'close');
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') return false;
    if (code !== 'EADDRNOTAVAIL') throw error;
    const hint = `on macOS: sudo ifconfig lo0 alias ${address}`;
    throw new Error(`this host does not have the address ${address} (${hint})`, { cause: error });
  }
}

/** `wanted` if it is free on all the addresses, else the first such port above it. */
export async function portNear(
  protocol: 'TCP' | 'UDP',
  wanted: number,
  addresses: readonly string[],
): Promise<number> {
  for (let port = wanted; port < wanted + 200; port += 1) {
    const free = await Promise.all(addresses.map((address) => isFree(protocol, address, port)));
    if (free.every(Boolean)) return port;
  }
  throw new Error(`no free port from ${wanted} on at ${addresses.join(', ')}`);
}

/** Different free TCP ports of 127.0.0.1, none that the system chooses for sockets of other programs. */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  let next = 10_000 + Math.floor(Math.random() * 12_000);
  for (let index = 0; index < count; index += 1) {
    ports.push(await portNear('TCP', next, ['127.0.0.1']));
    next = (ports.at(-1) ?? 0) + 1;
  }
  return ports;
}
