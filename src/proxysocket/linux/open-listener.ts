import { familyOf, type Family } from '../../util/family.ts';
import { offerSockets, takeInherited } from '../core/inherited.ts';
import type { ListenSpec, Protocol } from '../spec.ts';
import type { Loop } from './loop.ts';
import * as k from './sys/abi.ts';
import { openSys, type Sys } from './sys/sys.ts';

interface OpenListenerOptions {
  readonly prepare?: (fd: number, family: Family) => void;
  readonly listen?: (fd: number) => number;
}

/**
 * Opens the socket of a listener, or takes an inherited one, and opens those of other threads. The first is bound
 * before SO_REUSEPORT is set: an address of another program is an error, even if that would share it. Throws the
 * system's error; nothing is left open then.
 */
export function openListener(
  loop: { readonly sys: Sys; readonly opened?: Loop['opened'] },
  protocol: Protocol,
  spec: Pick<ListenSpec, 'address' | 'port' | 'group' | 'transparent'>,
  { prepare = () => undefined, listen = () => 0 }: OpenListenerOptions,
): number {
  const { sys } = loop;
  const { address, port, group } = spec;
  const family = familyOf(address);
  const taken = takeInherited(protocol, address, port);
  const missing = Math.max(group?.missing ?? 0, taken === undefined ? 1 : 0);
  const inAll = group?.sockets ?? 1;
  const opened: number[] = [];
  const share = (fd: number) => sys.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
  const open = (at: number, joins: boolean): number => {
    const fd = protocol === 'TCP' ? sys.stream(family) : sys.datagram(family);
    check(fd, 'socket');
    opened.push(fd);
    prepare(fd, family);
    if (spec.transparent !== undefined) {
      check(sys.setTransparent(fd, family), 'setsockopt IP_TRANSPARENT');
    }
    if (joins) share(fd);
    check(sys.bind(fd, { address, port: at }), 'bind');
    return fd;
  };
  try {
    if (taken !== undefined) {
      sys.ledger.opened(taken);
      prepare(taken, family);
    }
    const fd = taken ?? open(port, missing < inAll);
    if (inAll > 1) share(fd);
    check(listen(fd), 'listen');
    const boundPort = sys.localAddress(fd)?.port ?? port;
    while (opened.length < missing) {
      const other = open(boundPort, true);
      check(listen(other), 'listen');
    }
    if (inAll > 1 && missing > 0) sys.steer(fd, inAll);
    if (group !== undefined && missing > 0) {
      const { slot } = group;
      const own = taken === undefined ? fd : undefined;
      const place = { slot, protocol, address, port: boundPort };
      loop.opened?.({ ...place, own, others: opened.filter((each) => each !== own) });
    }
    return fd;
  } catch (error) {
    for (const fd of opened) sys.close(fd);
    // Its queue may contain clients: the next attempt takes it again.
    if (taken !== undefined) offerSockets([{ protocol, address, port, fd: taken }], []);
    throw error;
  }
}

/**
 * A bound TCP socket on a loopback address that may have clients of any address, for a server of the main thread; the
 * caller owns the descriptor. Rejects with the system's error, and where Node cannot make system calls.
 */
export async function transparentSocket(family: Family): Promise<number> {
  const address = family === 4 ? '127.0.0.1' : '::1';
  const sys = await openSys();
  return openListener({ sys }, 'TCP', { address, port: 0, transparent: [] }, {});
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
