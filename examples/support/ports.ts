import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';

/** Something that holds a port until it is closed. */
async function hold(protocol: 'TCP' | 'UDP', address: string, port: number) {
  const held =
    protocol === 'UDP'
      ? createSocket('udp4').bind({ port, address, exclusive: true })
      : createServer().listen({ port, host: address, exclusive: true });
  await once(held, 'listening');
  return held;
}

async function release(held: Awaited<ReturnType<typeof hold>>): Promise<number> {
  const { port } = held.address() as AddressInfo;
  held.close();
  await once(held, 'close');
  return port;
}

/** Whether the port is free there. Rejects when nothing can listen there at all. */
async function isFree(protocol: 'TCP' | 'UDP', address: string, port: number): Promise<boolean> {
  try {
    await release(await hold(protocol, address, port));
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

/** Different free TCP ports of 127.0.0.1, chosen by the system. */
export async function freePorts(count: number): Promise<number[]> {
  const held = await Promise.all(Array.from({ length: count }, () => hold('TCP', '127.0.0.1', 0)));
  return Promise.all(held.map(release));
}
