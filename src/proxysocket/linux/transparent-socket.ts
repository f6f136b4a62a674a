import type { Family } from '../../util/family.ts';
import { systemError } from './sys/abi.ts';
import { openSys } from './sys/sys.ts';

/**
 * A bound TCP socket on a loopback address that may have clients of any address, for a server of the main thread; the
 * caller owns the descriptor. Rejects with the system's error, and where Node cannot make system calls.
 */
export async function transparentSocket(family: Family): Promise<number> {
  const sys = await openSys();
  const { sockets } = sys;
  const fd = sockets.stream(family);
  if (fd < 0) throw systemError(-fd, 'socket');
  const address = family === 4 ? '127.0.0.1' : '::1';
  for (const [call, result] of [
    ['setsockopt IP_TRANSPARENT', sockets.setTransparent(fd, family)],
    ['bind', sockets.bind(fd, sys.sockaddr({ address, port: 0 }))],
  ] as const) {
    if (result >= 0) continue;
    sockets.close(fd);
    throw systemError(-result, call);
  }
  return fd;
}
