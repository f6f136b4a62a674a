import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { TcpShared } from './shared.ts';

/**
 * To reach an endpoint of this host, the kernel may choose the endpoint's own port for our side. If
 * nobody listens there, TCP then connects the socket to itself: the client would get its own bytes
 * back, and the endpoint could not have its port again.
 */
export function isConnectedToItself(
  { loop, kernelPorts: range }: Pick<TcpShared, 'loop' | 'kernelPorts'>,
  fd: number,
  { address, port }: BalancerEndpoint,
): boolean {
  if (range !== undefined && (port < range.first || port > range.last)) return false;
  const local = loop.sys.sockets.localAddress(fd);
  return local?.port === port && local.address === address;
}
