import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';

export type Protocol = 'TCP' | 'UDP';

/** A reserved port. */
interface HeldPort {
  readonly port: number;
  release(): Promise<void>;
}

async function hold(protocol: Protocol, address: string, port: number): Promise<HeldPort> {
  if (protocol === 'UDP') {
    const socket = createSocket('udp4');
    socket.bind({ port, address, exclusive: true });
    await once(socket, 'listening');
    const release = async (): Promise<void> => {
      socket.close();
      await once(socket, 'close');
    };
    return { port: socket.address().port, release };
  }
  const server = createServer();
  server.listen({ port, host: address, exclusive: true });
  await once(server, 'listening');
  const bound = server.address();
  const release = async (): Promise<void> => {
    server.close();
    await once(server, 'close');
  };
  return { port: typeof bound === 'object' && bound !== null ? bound.port : port, release };
}

/** Whether the port is free there. Rejects when nothing can listen there at all. */
async function isFree(protocol: Protocol, address: string, port: number): Promise<boolean> {
  try {
    await (await hold(protocol, address, port)).release();
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
  protocol: Protocol,
  wanted: number,
  addresses: readonly string[],
): Promise<number> {
  for (let port = wanted; port < wanted + 200; port += 1) {
    const free = await Promise.all(addresses.map((address) => isFree(protocol, address, port)));
    if (free.every(Boolean)) return port;
  }
  throw new Error(`no free port from ${wanted} on at ${addresses.join(', ')}`);
}

/** Different free ports, chosen by the system. */
export async function freePorts(
  protocol: Protocol,
  address: string,
  count: number,
): Promise<number[]> {
  const held = await Promise.all(Array.from({ length: count }, () => hold(protocol, address, 0)));
  await Promise.all(held.map((port) => port.release()));
  return held.map((port) => port.port);
}
