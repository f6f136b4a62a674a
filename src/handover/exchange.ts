import { readdirSync, closeSync } from 'node:fs';
import type { PreviousListener, InheritedSocket } from '../proxysocket/core/inherited.ts';
import type { PreviousFlow } from '../proxysocket/udp/known-clients.ts';
import { inodeOf } from '../util/socket-file.ts';
import { isAllowedUser, readHello, refusal, type Offer, helloFrom, readOffer } from './protocol.ts';
import { Wire, type Rights } from './wire.ts';
import { systemError } from '../proxysocket/linux/sys/abi.ts';

export interface SendOptions {
  readonly listeners: readonly PreviousListener[];
  /** UDP sessions, whose clients the new process sends to the same endpoints. */
  readonly flows: readonly PreviousFlow[];
  /** TCP ports of other listeners of this process. */
  readonly ports: readonly number[];
}

export type SendResult =
  | {
      readonly ok: true;
      readonly pid: number;
      /** Inode numbers of the sockets sent to it. */
      readonly inodes: readonly number[];
    }
  | { readonly ok: false; readonly reason: string };

/**
 * Answers a new process with the listening sockets; one that may not have them, or cannot use them, gets the reason.
 */
export function sendSockets(rights: Rights, wire: Wire, options: SendOptions): SendResult {
  const { listeners, flows, ports } = options;
  const refuse = (reason: string): SendResult => {
    wire.say({ ok: false, reason } satisfies Offer);
    return { ok: false, reason };
  };
  if (!isAllowedUser(rights.peerUser(wire.fd))) return refuse('it belongs to another user');
  const hello = readHello(wire.readLine());
  const problem = refusal(hello);
  if (problem !== undefined) return refuse(problem);
  const found = listeningSockets(rights, [
    ...listeners,
    ...ports.map((port) => ({ protocol: 'TCP' as const, port })),
  ]);
  const { pid } = process;
  wire.say({ ok: true, pid, sockets: found.size, former: listeners, flows } satisfies Offer);
  wire.sendDescriptors([...found.values()]);
  return { ok: true, pid: hello.pid, inodes: [...found.keys()] };
}

/**
 * The sockets of this process that listen on the given ports, from any thread: one descriptor of each, by inode
 * number. One that is closed and reused before it is sent does no harm: the new process checks what it receives.
 */
function listeningSockets(
  rights: Rights,
  listeners: readonly Pick<PreviousListener, 'protocol' | 'port'>[],
): Map<number, number> {
  const ports = new Set(listeners.map(({ protocol, port }) => `${protocol} ${port}`));
  const found = new Map<number, number>();
  for (const fd of readdirSync('/proc/self/fd').map(Number)) {
    const socket = rights.listeningSocket(fd);
    if (socket === undefined || !ports.has(`${socket.protocol} ${socket.port}`)) continue;
    // Workers of the `node` engine have two of each socket, which the new process would mistake for two listeners.
    const inode = inodeOf(fd);
    if (inode !== undefined && !found.has(inode)) found.set(inode, fd);
  }
  return found;
}

/** The sockets and sessions that a new process received. */
export interface ReceivedSockets {
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
