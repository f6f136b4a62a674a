import { SO_SNDBUF, SOL_SOCKET } from '../../src/proxysocket/linux/sys/abi.ts';
import { Sockets } from '../../src/proxysocket/linux/sys/sockets.ts';

/** Under which name a test asks worker threads for small buffers. */
export const SMALL_BUFFERS = 'kpng-userspace small buffers';

type Open = (this: Sockets, argument: number) => number;

/**
 * Gives every TCP socket of the `linux` engine in this thread the smallest send buffer that the kernel
 * has, so that hardly any write is taken in full. (With the smallest receive buffer TCP would wait for
 * its timers all the time.) Returns what ends this.
 */
export function useSmallBuffers(): () => void {
  const { prototype } = Sockets;
  const before = Object.getOwnPropertyDescriptors(prototype);
  const cover = (name: 'stream' | 'accept'): void => {
    const open = before[name].value as unknown as Open;
    const value: Open = function (argument) {
      const fd = open.call(this, argument);
      if (fd >= 0) this.setOption(fd, SOL_SOCKET, SO_SNDBUF, 1);
      return fd;
    };
    Object.defineProperty(prototype, name, { ...before[name], value });
  };
  cover('stream');
  cover('accept');
  return () => Object.defineProperties(prototype, before);
}
