import { fstatSync } from 'node:fs';
import type { RemoteInfo, Socket } from 'node:dgram';
import type { Family } from '../../../util/family.ts';
import { ClientTable } from '../../udp/tables.ts';
import { Front, type FrontOwner } from '../../udp/transport.ts';
import type { NodeUdpSession } from './session.ts';
import { askBuffers, closeSocket, handleOf } from './socket.ts';

/** A listening socket of `dgram`. */
export class NodeFront extends Front<NodeUdpSession> {
  readonly socket: Socket;
  readonly #sessions = new ClientTable<NodeUdpSession>();

  /** Owns a socket that is bound. */
  constructor(
    socket: Socket,
    family: Family,
    owner: FrontOwner<NodeUdpSession>,
    socketBuffer: number,
  ) {
    super(family, owner);
    this.socket = socket;
    askBuffers(socket, socketBuffer);
    socket.on('message', this.#onMessage);
    // Windows reports here that an answer did not reach a client (ECONNRESET), and any system may
    // fail to hand over a datagram. The socket goes on receiving after an error.
    socket.on('error', () => owner.dropped());
  }

  all(): NodeUdpSession[] {
    return [...this.#sessions.values()];
  }

  protected remove(session: NodeUdpSession): void {
    this.#sessions.delete(session);
  }

  protected isEmpty(): boolean {
    return this.#sessions.isEmpty;
  }

  /** `dgram` has no documented way to stop reading and send on. Where this one is gone, the socket closes early. */
  protected stopReading(served: ReadonlySet<number>): boolean {
    const handle = handleOf(this.socket);
    if (handle?.recvStop === undefined || !served.has(fstatSync(handle.fd).ino)) return false;
    handle.recvStop();
    return true;
  }

  protected closeSocket(): Promise<void> {
    return closeSocket(this.socket);
  }

  readonly #onMessage = (message: Buffer, remote: RemoteInfo): void => {
    const session = this.#sessions.get(remote.address, remote.port) ?? this.#begin(remote);
    session?.forward(message);
  };

  #begin({ address, port }: RemoteInfo): NodeUdpSession | undefined {
    if (port === 0) {
      // It cannot be answered there, and `dgram` throws when asked to.
      this.owner.dropped();
      return undefined;
    }
    const session = this.owner.begin(this, { address, port });
    if (session !== undefined && !session.hasEnded) this.#sessions.add(session);
    return session;
  }
}
