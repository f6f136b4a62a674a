import { createSocket } from 'node:dgram';

/**
 * Whether the host has an address, found out by binding a socket to it for a moment: a few
 * microseconds, whatever number of addresses there are. When it cannot be found out, the address counts
 * as there.
 */
export function hostHas(address: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  socket.once('error', (error: NodeJS.ErrnoException) => {
    socket.close();
    resolve(error.code !== 'EADDRNOTAVAIL');
  });
  socket.bind({ address, port: 0, exclusive: true }, () => {
    socket.close();
    resolve(true);
  });
  return promise;
}
