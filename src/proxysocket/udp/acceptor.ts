import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { OwnedListener } from '../core/listener.ts';
import type { EndpointUse } from '../core/endpoint-index.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import type { NewProcess } from '../engine.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenSpec } from '../spec.ts';
import { Sessions } from './sessions.ts';
import type {
  ClientAddress,
  ListenSocketOwner,
  UdpListening,
  UdpSession,
  UdpTransport,
} from './transport.ts';

/**
 * The UDP half of an engine, on the sockets of a transport.
 *
 * A session is one client port at one listening socket, with its own socket that is connected to one endpoint. It
 * ends when it is idle, when its endpoint, service port or listener is removed, when an ICMP error reports a closed
 * port, or when a newer one needs its room. The client's next datagram then begins another one.
 */
export class UdpAcceptor<S extends UdpSession<S>> implements Acceptor {
  readonly #transport: UdpTransport<S>;
  readonly #sessions: Sessions<S>;
  readonly #listeners = new Set<UdpListener<S>>();
  #hasLeft = false;

  constructor(transport: UdpTransport<S>, context: EngineContext) {
    this.#transport = transport;
    this.#sessions = new Sessions(context, transport);
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    const listener: UdpListener<S> = new UdpListener(this.#sessions, spec, owner, () =>
      this.#listeners.delete(listener),
    );
    await listener.open(this.#transport.listen(spec, listener));
    this.#listeners.add(listener);
    return listener;
  }

  endpointGone(endpoint: BalancerEndpoint): void {
    this.#sessions.endpointGone(endpoint);
  }

  servicePortGone(owner: ServicePort): void {
    if (!this.#hasLeft) this.#sessions.ownerGone(owner);
  }

  leave({ served }: NewProcess): void {
    this.#hasLeft = true;
    for (const listener of this.#listeners) listener.leave(served);
  }

  connections(): Iterable<Inspectable> {
    return this.#sessions.connections();
  }

  useOf(endpoint: BalancerEndpoint): EndpointUse {
    return this.#sessions.useOf(endpoint);
  }

  drained(): Promise<void> {
    return this.#sessions.drained();
  }

  async destroy(): Promise<void> {
    this.#sessions.destroy();
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
  }
}

/** A listening UDP socket, or several at one address. */
class UdpListener<S extends UdpSession<S>>
  extends OwnedListener<UdpListening<S>>
  implements ListenSocketOwner<S>
{
  readonly protocol = 'UDP';
  readonly #sessions: Sessions<S>;

  constructor(sessions: Sessions<S>, spec: ListenSpec, owner: ServicePort, onClose: () => void) {
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
      this.#sessions.refusals.refuse(this.owner, client, 'source');
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
