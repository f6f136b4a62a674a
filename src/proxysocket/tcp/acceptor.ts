import type { BalancerEndpoint, PickRequest } from '../../roundrobin/types.ts';
import { OwnedListener } from '../core/listener.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { EndpointUse } from '../core/endpoint-index.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import { TcpConnection, type Origin } from './connection.ts';
import { countRejected, publishAccepted } from './publish.ts';
import { createTcpShared, tcpTimes, type TcpShared } from './shared.ts';
import type { AcceptOwner, TcpClient, TcpListening, TcpTransport } from './transport.ts';

/** The TCP half of an engine, on the sockets of a transport. */
export class TcpAcceptor implements Acceptor {
  readonly #transport: TcpTransport;
  readonly #shared: TcpShared;
  readonly #listeners = new Set<TcpListener>();

  /** `loops`: finds endpoints that loop back to their service. */
  constructor(transport: TcpTransport, context: EngineContext, loops: LoopGuard) {
    this.#transport = transport;
    this.#shared = createTcpShared(context, transport, loops);
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    const listener: TcpListener = new TcpListener(this.#shared, spec, owner, () =>
      this.#listeners.delete(listener),
    );
    await listener.open(this.#transport.listen(spec, listener));
    this.#listeners.add(listener);
    return listener;
  }

  limitsChanged(): void {
    Object.assign(this.#shared, tcpTimes(this.#shared, this.#transport));
    this.#shared.holds.limitsChanged();
  }

  endpointGone(endpoint: BalancerEndpoint): void {
    for (const connection of this.#shared.index.of(endpoint)) connection.endpointGone();
  }

  endpointsChanged(owner: ServicePort): void {
    this.#shared.holds.endpointsChanged(owner);
  }

  /** Established relays continue, as in kube-proxy's userspace mode. */
  servicePortGone(owner: ServicePort): void {
    this.#shared.holds.servicePortGone(owner);
    const ofOwner = [...this.#shared.announced].filter((each) => each.servicePort === owner.name);
    for (const client of ofOwner) client.reject('no-endpoint');
  }

  *connections(): Iterable<Inspectable> {
    yield* this.#shared.announced;
    yield* this.#shared.holds;
    yield* this.#shared.index;
  }

  useOf(endpoint: BalancerEndpoint): EndpointUse {
    return this.#shared.index.useOf(endpoint, ({ relay }) => relay);
  }

  drained(): Promise<void> {
    return this.#shared.gate.empty();
  }

  async destroy(): Promise<void> {
    const { index, holds, announced, gate } = this.#shared;
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
    for (const connection of [...announced, ...holds, ...index.all()]) connection.destroy();
    await gate.empty();
    await this.#transport.destroy();
  }
}

/** A listening TCP socket. */
class TcpListener extends OwnedListener<TcpListening> implements AcceptOwner, Origin {
  readonly protocol = 'TCP';
  readonly #shared: TcpShared;

  constructor(shared: TcpShared, spec: ListenSpec, owner: ServicePort, onClose: () => void) {
    super(spec, owner, onClose);
    this.#shared = shared;
  }

  accepted(client: TcpClient): void {
    const { owner } = this;
    owner.counters.connections += 1;
    publishAccepted(owner, client);
    const connection = new TcpConnection(this.#shared, client, owner, this);
    const refuse = (reason: 'source' | 'limit'): void => {
      countRejected(owner, reason, connection);
      client.reset();
    };
    const isAnnounced = owner.announcesClients?.(connection.client) === true;
    if (!isAnnounced && !this.admits(connection)) refuse('source');
    else if (!this.#shared.gate.enter()) refuse('limit');
    else if (isAnnounced) connection.startAnnounced();
    else connection.start();
  }

  acceptFailed(): void {
    countRejected(this.owner, 'limit');
  }

  admits(connection: PickRequest): boolean {
    return this.filter?.(connection.client) ?? true;
  }

  trafficFrom(connection: PickRequest): Traffic {
    return this.asksClient ? this.trafficOf(connection.client) : this.traffic;
  }
}
