import type { RemoteInfo, Socket } from 'node:dgram';
import type { Family } from '../../util/family.ts';
import type { Traffic } from '../spec.ts';
import type { ServicePort } from '../core/service-port.ts';
import type { SourceFilter } from '../core/source-ranges.ts';
import { ClientTable } from './client-table.ts';
import type { Session, SessionFront } from './session.ts';
import type { SessionTable } from './session-table.ts';
import { askBuffers, closeSocket, stopReading } from './socket.ts';

/** Whom a listener works for. */
export interface Assignment {
  readonly owner: ServicePort;
  readonly traffic: Traffic;
  /** Which clients are let in; undefined: all. */
  readonly admits: SourceFilter | undefined;
}

/** One listening socket and the sessions of its clients. */
export class Front implements SessionFront {
  readonly socket: Socket;
  readonly family: Family;
  readonly #table: SessionTable;
  readonly #sessions = new ClientTable<Session>();
  #assignment: Assignment;
  #hasLeft = false;
  #closed: Promise<void> | undefined;

  /** Takes over a socket that is bound. */
  constructor(table: SessionTable, socket: Socket, family: Family, assignment: Assignment) {
    this.#table = table;
    this.socket = socket;
    this.family = family;
    this.#assignment = assignment;
    askBuffers(socket, table.socketBuffer);
    socket.on('message', this.#onMessage);
    // Windows reports here that an answer did not reach a client (ECONNRESET), and any system may
    // fail to hand over a datagram. The socket goes on receiving after an error.
    socket.on('error', () => {
      this.#assignment.owner.counters.datagramsDropped += 1;
    });
  }

  get traffic(): Traffic {
    return this.#assignment.traffic;
  }

  /** New clients are served by the new owner at once. Sessions that do not fit any more end. */
  assign(assignment: Assignment): void {
    const former = this.#assignment;
    this.#assignment = assignment;
    const sameService = former.owner === assignment.owner && former.traffic === assignment.traffic;
    const misfits = [...this.#sessions.values()].filter(
      ({ client }) => !sameService || assignment.admits?.(client.address) === false,
    );
    this.#table.endAll(misfits);
  }

  forget(session: Session): void {
    this.#sessions.delete(session);
    this.#closeWhenLeft();
  }

  /**
   * Reads no more if this is one of the sockets that are `served` by a successor, by inode numbers. It closes when
   * the last session has ended, whose answers still leave from here; `close` does not wait for that.
   */
  leave(served: ReadonlySet<number>): void {
    if (this.#closed !== undefined) return;
    this.#hasLeft = stopReading(this.socket, (inode) => served.has(inode));
    this.#closeWhenLeft();
  }

  /** Ends the sessions, whose answers have no way out any more, and closes the socket. Idempotent. */
  async close(): Promise<void> {
    if (this.#hasLeft) return;
    this.#table.endAll([...this.#sessions.values()]);
    this.#closed ??= closeSocket(this.socket);
    await this.#closed;
  }

  #closeWhenLeft(): void {
    if (this.#hasLeft && this.#sessions.isEmpty) this.#closed ??= closeSocket(this.socket);
  }

  readonly #onMessage = (message: Buffer, remote: RemoteInfo): void => {
    const session = this.#sessions.get(remote.address, remote.port) ?? this.#begin(remote);
    session?.forward(message);
  };

  #begin({ address, port }: RemoteInfo): Session | undefined {
    const { owner, admits } = this.#assignment;
    if (port === 0) {
      // Nobody can be answered there, and `dgram` throws when asked to.
      owner.counters.datagramsDropped += 1;
      return undefined;
    }
    const client = { address, port };
    if (admits?.(address) === false) {
      this.#table.refusals.refuse(owner, client, 'source');
      return undefined;
    }
    const session = this.#table.begin(this, owner, client);
    if (session !== undefined && !session.hasEnded) this.#sessions.add(session);
    return session;
  }
}
