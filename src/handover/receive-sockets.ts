import { closeSync } from 'node:fs';
import type { PreviousListener, InheritedSocket } from '../proxysocket/core/inherited.ts';
import { systemError } from '../proxysocket/linux/sys/abi.ts';
import type { Rights } from './rights.ts';
import type { PreviousFlow } from '../proxysocket/udp/previous-flows.ts';
import { helloFrom, isAllowedUser, readOffer } from './protocol.ts';
import { Wire } from './wire.ts';

export interface ReceiveOptions {
  readonly path: string;
  readonly pid: number;
  readonly uid: number;
  readonly network: string;
  /** Time limit for the predecessor's answer. Milliseconds. */
  readonly limitMs: number;
}

/** The sockets and sessions that a new process received. */
export interface ReceivedSockets {
  /** Process id of the predecessor. */
  readonly pid: number;
  readonly sockets: readonly InheritedSocket[];
  readonly previousListeners: readonly PreviousListener[];
  readonly flows: readonly PreviousFlow[];
  /** The connection to it. */
  readonly connection: number;
}

/** Calls the predecessor and receives its sockets. If it throws, nothing is left open. */
export function receiveSockets(rights: Rights, options: ReceiveOptions): ReceivedSockets {
  const connection = rights.connect(options.path);
  if (connection < 0) throw systemError(-connection, 'connect');
  const wire = new Wire(rights, connection, options.limitMs);
  try {
    const peer = rights.peer(connection);
    // A foreign process could make us listen on sockets of its choice and obtain our clients' data.
    if (peer === undefined || !isAllowedUser(peer.uid, options.uid)) {
      throw new Error(`${options.path} is served by another user`);
    }
    wire.say(helloFrom(options.pid, options.network));
    const offer = readOffer(wire.readLine());
    if (!offer.ok) throw new Error(`the predecessor refuses: ${offer.reason}`);
    const { pid, former: previousListeners, flows = [] } = offer;
    const sockets = sortOut(rights, wire.receiveDescriptors(offer.sockets));
    return { pid, previousListeners, flows, connection, sockets };
  } catch (error) {
    for (const fd of [...wire.descriptors, connection]) closeSync(fd);
    throw error;
  }
}

/** Keeps the listening sockets; closes the rest. */
function sortOut(rights: Rights, descriptors: readonly number[]): InheritedSocket[] {
  const sockets: InheritedSocket[] = [];
  for (const fd of descriptors) {
    const address = rights.listeningAddress(fd);
    if (address === undefined) closeSync(fd);
    else sockets.push({ ...address, fd });
  }
  return sockets;
}
