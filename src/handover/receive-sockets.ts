import { closeSync } from 'node:fs';
import type { PreviousListener, InheritedSocket } from '../proxysocket/core/inherited.ts';
import { systemError } from '../proxysocket/linux/sys/abi.ts';
import type { Rights } from './rights.ts';
import type { PreviousFlow } from '../proxysocket/udp/previous-flows.ts';
import { helloFrom, isAllowedUser, readOffer } from './protocol.ts';
import { Wire } from './wire.ts';

/** The sockets and sessions that a new process received. */
export interface ReceivedSockets {
  /** Process id of the predecessor. */
  readonly pid: number;
  readonly sockets: readonly InheritedSocket[];
  readonly previousListeners: readonly PreviousListener[];
  readonly flows: readonly PreviousFlow[];
  readonly connection: number;
}

/** Calls the predecessor at a path and receives its sockets. If it throws, nothing is left open. */
export function receiveSockets(rights: Rights, path: string): ReceivedSockets {
  const connection = rights.connect(path);
  if (connection < 0) throw systemError(-connection, 'connect');
  const wire = new Wire(rights, connection);
  try {
    // A foreign process could make us listen on sockets of its choice and obtain our clients' data.
    if (!isAllowedUser(rights.peerUser(connection))) {
      throw new Error(`${path} is served by another user`);
    }
    wire.say(helloFrom());
    const offer = readOffer(wire.readLine());
    if (!offer.ok) throw new Error(`the predecessor refuses: ${offer.reason}`);
    const { pid, former: previousListeners, flows } = offer;
    const sockets = wire.receiveDescriptors(offer.sockets).flatMap((fd) => {
      const socket = rights.listeningSocket(fd);
      if (socket === undefined) closeSync(fd);
      return socket ?? [];
    });
    return { pid, previousListeners, flows, connection, sockets };
  } catch (error) {
    for (const fd of [...wire.descriptors, connection]) closeSync(fd);
    throw error;
  }
}
