import type { Family } from '../../util/family.ts';
import * as k from './sys/abi.ts';
import type { Sys } from './sys/sys.ts';

/**
 * Gives a socket that is to be connected the address of a client, an IP literal. 0, or a negative error number. The kernel
 * chooses the port when it knows the endpoint, so that many clients may have the same one.
 */
export function bindSource(sys: Sys, fd: number, family: Family, address: string): number {
  const { sockets } = sys;
  const result = sockets.setTransparent(fd, family);
  if (result < 0) return result;
  sockets.setOption(fd, k.IPPROTO_IP, k.IP_BIND_ADDRESS_NO_PORT, 1);
  return sockets.bind(fd, sys.sockaddr({ address, port: 0 }));
}
