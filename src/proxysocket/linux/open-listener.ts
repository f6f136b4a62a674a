import { familyOf, isWildcard, type Family } from '../../util/family.ts';
import { offerSockets, takeInherited } from '../../util/inherited.ts';
import { DEFAULT_LIMITS, type EngineLimits } from '../limits.ts';
import type { ListenSpec, Protocol } from '../spec.ts';
import { INTEREST, type Loop, type Pollable } from './loop.ts';
import * as k from './sys/abi.ts';
import { openSys, type Sys } from './sys/sys.ts';

/** Opens the socket of a listener, or takes an inherited one. Throws the system's error; nothing is left open then. */
export function openListener(
  sys: Sys,
  protocol: Protocol,
  spec: ListenSpec,
  limits: EngineLimits,
): number {
  const inherited = takeInherited(protocol, spec.address, spec.port);
  const taken = inherited === undefined ? [] : [inherited];
  const [fd = -1] = openSockets(sys, protocol, spec, limits, taken);
  return fd;
}

/**
 * Opens `count` sockets at one address, less those that are inherited; the kernel spreads clients over them by their
 * address. The first is bound before SO_REUSEPORT is set: an address of another program is an error, even if that would
 * share it. Throws the system's error; nothing is left open then.
 */
export function openSockets(
  sys: Sys,
  protocol: Protocol,
  spec: ListenSpec,
  limits: EngineLimits,
  inherited: readonly number[],
  count = 1,
): number[] {
  const { address, transparent } = spec;
  const family = familyOf(address);
  const areMany = Math.max(inherited.length, count) > 1;
  const opened: number[] = [];
  let { port } = spec;
  const share = (fd: number) => sys.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
  const listen = (fd: number): void => {
    if (areMany) share(fd);
    if (protocol === 'TCP') check(sys.c.listen(fd, limits.backlog), 'listen');
  };
  try {
    for (const fd of inherited) {
      sys.ledger.opened(fd);
      prepare(sys, fd, protocol, address, limits);
      listen(fd);
    }
    while (inherited.length + opened.length < count) {
      const fd = protocol === 'TCP' ? sys.stream(family) : sys.datagram(family);
      check(fd, 'socket');
      opened.push(fd);
      prepare(sys, fd, protocol, address, limits);
      if (transparent !== undefined) {
        check(sys.setTransparent(fd, family), 'setsockopt IP_TRANSPARENT');
      }
      if (inherited.length + opened.length > 1) share(fd);
      check(sys.bind(fd, { address, port }), 'bind');
      listen(fd);
      port = sys.localAddress(fd)?.port ?? port;
    }
    const all = [...inherited, ...opened];
    if (areMany && opened.length > 0) sys.steer(all[0] ?? -1, all.length);
    return all;
  } catch (error) {
    for (const fd of opened) sys.close(fd);
    // Their queues may contain clients: the next attempt takes them again.
    offerSockets(inherited.map((fd) => ({ protocol, address, port, fd })));
    throw error;
  }
}

/** Accepted sockets inherit the options. */
function prepare(
  sys: Sys,
  fd: number,
  protocol: Protocol,
  address: string,
  { keepAliveMs, udpSocketBuffer }: EngineLimits,
): void {
  const family = familyOf(address);
  // The IPv4 wildcard is a listener of its own.
  if (family === 6) sys.setOption(fd, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
  if (protocol === 'TCP') {
    sys.setOption(fd, k.SOL_SOCKET, k.SO_REUSEADDR, 1);
    sys.setNoDelay(fd);
    sys.setKeepAlive(fd, keepAliveMs);
    return;
  }
  sys.setBufferSizes(fd, udpSocketBuffer);
  if (!isWildcard(address)) return;
  if (family === 4) sys.setOption(fd, k.IPPROTO_IP, k.IP_PKTINFO, 1);
  else sys.setOption(fd, k.IPPROTO_IPV6, k.IPV6_RECVPKTINFO, 1);
}

/** Calls an owner when an open listener is ready; returns its port. Throws the system's error; nothing is left open then. */
export function watchListener(loop: Loop, fd: number, owner: Pollable): number {
  const result = loop.watch(fd, owner, INTEREST.readable);
  if (result >= 0) return loop.sys.localAddress(fd)?.port ?? 0;
  loop.close(fd);
  throw k.systemError(-result, 'epoll_ctl');
}

export function closeListener(loop: Loop, fd: number): void {
  // If another process has the socket as well, closing a descriptor does not end the watch.
  loop.unwatch(fd);
  loop.close(fd);
}

/**
 * A listening TCP socket on a loopback address that may have clients of any address, for a server of the main thread; the
 * caller owns the descriptor. Rejects with the system's error, and where Node cannot make system calls.
 */
export async function transparentSocket(family: Family): Promise<number> {
  const address = family === 4 ? '127.0.0.1' : '::1';
  const spec = { address, port: 0, traffic: 'internal', transparent: [] } as const;
  return openListener(await openSys(), 'TCP', spec, DEFAULT_LIMITS);
}

function check(result: number, call: string): void {
  if (result < 0) throw k.systemError(-result, call);
}

/** Whether the kernel takes a program that assigns clients to sockets; seccomp may forbid it. */
export function canSteer(sys: Sys): boolean {
  const fd = sys.datagram(4);
  if (fd < 0) return false;
  sys.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
  const bound = sys.bind(fd, { address: '127.0.0.1', port: 0 });
  const steers = bound >= 0 && sys.steer(fd, 1) === 0;
  sys.close(fd);
  return steers;
}
