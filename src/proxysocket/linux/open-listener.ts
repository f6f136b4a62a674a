import type { Family } from '../../util/family.ts';
import { inheritedCount, takeInherited } from '../core/inherited.ts';
import type { ListenSpec, Protocol } from '../spec.ts';
import type { Loop } from './loop.ts';
import * as k from './sys/constants.ts';
import { systemError } from './sys/errno.ts';

export interface OpenListenerOptions {
  /** Sets options before the socket gets its address. */
  readonly prepare: (fd: number, family: Family) => void;
  /** Lets a bound socket listen; 0, or a negative error number. */
  readonly listen?: (fd: number) => number;
}

/**
 * Opens the socket of a listener, or takes one over that a former process or worker has left there.
 *
 * The first socket of a group has its place as if it were alone, so that a place which somebody else has
 * is an error, even if that is a group, too. Only then it lets others in. Throws the system's error.
 */
export function openListener(
  loop: Pick<Loop, 'sys' | 'former'>,
  protocol: Protocol,
  spec: Pick<ListenSpec, 'address' | 'port' | 'group'>,
  { prepare, listen = () => 0 }: OpenListenerOptions,
): number {
  const { sockets } = loop.sys;
  const { address, port, group } = spec;
  const place = loop.sys.sockaddr(spec);
  const former = formerSocket(loop, protocol, address, port);
  const opened = () =>
    protocol === 'TCP' ? sockets.stream(place.family) : sockets.datagram(place.family);
  const fd = former ?? opened();
  if (fd < 0) throw systemError(-fd, 'socket');
  const letIn = (): number => sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEPORT, 1);
  const bind = (): number => {
    if (group?.joins === true) letIn();
    const bound = sockets.bind(fd, place);
    // The first one of a group that went on without it: its place is among the others.
    const isAmongOthers =
      group !== undefined && loop.former?.knew(protocol, address, port) === true;
    if (bound !== -k.EADDRINUSE || !isAmongOthers) return bound;
    letIn();
    return sockets.bind(fd, place);
  };
  prepare(fd, place.family);
  const bound = former === undefined ? bind() : 0;
  if (group !== undefined) letIn();
  const result = bound < 0 ? bound : listen(fd);
  if (result < 0) {
    sockets.close(fd);
    throw systemError(-result, bound < 0 ? 'bind' : 'listen');
  }
  // Those of former workers that are not replaced one by one have clients, too.
  const others = inheritedCount(protocol, address, port);
  if (group?.joins === true) sockets.steer(fd, Math.max(group.sockets, others));
  return fd;
}

/** In the ledger of this thread, if there is one. */
function formerSocket(
  { former, sys }: Pick<Loop, 'sys' | 'former'>,
  protocol: Protocol,
  address: string,
  port: number,
): number | undefined {
  const inherited = takeInherited(protocol, address, port);
  if (inherited !== undefined) return sys.sockets.adopt(inherited);
  return former?.take(protocol, address, port);
}
