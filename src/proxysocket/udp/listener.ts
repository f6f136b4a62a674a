import { OwnedListener } from '../core/listener.ts';
import type { ServicePort } from '../core/service-port.ts';
import type { ListenSpec } from '../spec.ts';
import type { ClientAddress, ListenSocketOwner, UdpListening, UdpSession } from './transport.ts';

/** What a listener needs of the sessions of its engine. */
interface ListenerSessions<S extends UdpSession<S>> {
  /** Begins a session for a new client port; undefined, counted and reported, when it is refused. */
  begin(listenSocket: S['listenSocket'], owner: ServicePort, client: ClientAddress): S | undefined;
  /** Counts and reports a client that gets no session. */
  refuse(owner: ServicePort, client: ClientAddress, reason: 'source'): void;
  /** Ends sessions that their listening socket no longer serves. */
  endAll(sessions: Iterable<S>): void;
}

/** A listening UDP socket, or several at one address. */
export class UdpListener<S extends UdpSession<S>>
  extends OwnedListener<UdpListening<S>>
  implements ListenSocketOwner<S>
{
  readonly protocol = 'UDP';
  readonly #sessions: ListenerSessions<S>;

  constructor(
    sessions: ListenerSessions<S>,
    spec: ListenSpec,
    owner: ServicePort,
    onClose: () => void,
  ) {
    super(spec, owner, onClose);
    this.#sessions = sessions;
  }

  /** New clients are served by the new owner at once. Sessions with unsuitable endpoints end. */
  override assign(owner: ServicePort, spec: ListenSpec): void {
    const sameService = this.owner === owner && this.traffic === spec.traffic;
    super.assign(owner, spec);
    for (const listenSocket of this.listening?.listenSockets() ?? []) {
      const fits = ({ client }: S) => sameService && this.filter?.(client.address) !== false;
      this.endAll(listenSocket.all().filter((session) => !fits(session)));
    }
  }

  begin(listenSocket: S['listenSocket'], client: ClientAddress): S | undefined {
    if (this.filter?.(client.address) === false) {
      this.#sessions.refuse(this.owner, client, 'source');
      return undefined;
    }
    return this.#sessions.begin(listenSocket, this.owner, client);
  }

  dropped(): void {
    this.owner.counters.datagramsDropped += 1;
  }

  endAll(sessions: readonly S[]): void {
    this.#sessions.endAll(sessions);
  }

  /** Another process serves the sockets with these inode numbers now. */
  leave(served: ReadonlySet<number>): void {
    for (const listenSocket of this.listening?.listenSockets() ?? []) listenSocket.leave(served);
  }
}
