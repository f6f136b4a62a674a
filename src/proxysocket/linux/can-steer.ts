import * as k from './sys/constants.ts';
import type { Sys } from './sys/sys.ts';

/**
 * Whether the kernel takes a program that leads clients to sockets by their address. It may be
 * forbidden, by seccomp for instance.
 */
export function canSteer(sys: Sys): boolean {
  const { sockets } = sys;
  const fds: number[] = [];
  let port = 0;
  let result = 0;
  for (let count = 0; count < 2 && result >= 0; count += 1) {
    const fd = sockets.datagram(4);
    if (fd < 0) break;
    fds.push(fd);
    sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
    result = sockets.bind(fd, sys.sockaddr({ address: '127.0.0.1', port }));
    port = sockets.localAddress(fd)?.port ?? 0;
  }
  const [, last = -1] = fds;
  const steers = result >= 0 && sockets.steer(last, 2) === 0;
  for (const fd of fds) sockets.close(fd);
  return steers;
}
