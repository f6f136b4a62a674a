import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { OwnedListener } from '../core/listener.ts';
import { routeKey, routeKeys, type SharedServicePorts } from '../core/shared-service-ports.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { EndpointUse } from '../core/endpoint-index.ts';
import { countRejected, type EngineContext, type ServicePort } from '../core/service-port.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenSpec } from '../spec.ts';
import { TcpConnection } from './connection.ts';
import { publishAccepted } from './publish.ts';
import { TcpShared } from './shared.ts';
import type { AcceptOwner, TcpClient, TcpListening, TcpTransport } from './transport.ts';

/** The TCP half of an engine, on the sockets of a transport. */
export class TcpAcceptor {
  readonly #transport: TcpTransport;
  readonly #shared: TcpShared;
  readonly #listeners = new Set<TcpListener | SharedSocket>();
  readonly #ofShared: SharedServicePorts<AcceptOwner>;
  #hasLeft = false;

  /** `loops`: finds endpoints that loop back to their service. `ofShared`: who gets the clients of shared sockets. */
  constructor(
    transport: TcpTransport,
    context: EngineContext,
    loops: LoopGuard,
    ofShared: SharedServicePorts<AcceptOwner>,
  ) {
    this.#transport = transport;
    this.#shared = new TcpShared(context, transport, loops);
    this.#ofShared = ofShared;
  }

  /** Rejects with the operating system's error. */
  async listen(spec: ListenSpec, owner: ServicePort): Promise<OwnedListener> {
    const onClose = (): void => void this.#listeners.delete(listener);
    const listener: TcpListener | SharedSocket =
      spec.transparent === undefined
        ? new TcpListener(this.#shared, spec, owner, onClose)
        : new SharedSocket(this.#ofShared, spec, owner, onClose);
    await listener.open(this.#transport.listen(spec, listener));
    this.#listeners.add(listener);
    return listener;
  }

  /** Replaces the listeners at shared sockets that hand clients to a service port. */
  listenShared(listen: readonly ListenSpec[], owner: ServicePort): void {
    const routes = listen.map((spec) => {
      const listener = new TcpListener(this.#shared, spec, owner, () => undefined);
      return [routeKeys(spec), listener] as const;
    });
    this.#ofShared.route(owner.name, routes);
  }

  limitsChanged(): void {
    this.#shared.limitsChanged();
  }

  /** The endpoint was removed: attempts move on, relays end after the grace period. */
  endpointGone(endpoint: BalancerEndpoint): void {
    for (const connection of this.#shared.index.of(endpoint)) connection.endpointGone();
  }

  endpointsChanged(owner: ServicePort): void {
    this.#shared.holds.endpointsChanged(owner);
  }

  /** Established relays continue, as in kube-proxy's userspace mode. */
  servicePortGone(owner: ServicePort): void {
    this.#shared.holds.servicePortGone(owner);
    if (this.#hasLeft) return;
    const ofOwner = [...this.#shared.headers].filter((each) => each.servicePort === owner.name);
    for (const client of ofOwner) client.reject('no-endpoint');
  }

  /** Clients whose header is awaited are still served. */
  leave(): void {
    this.#hasLeft = true;
  }

  /** What waits for an endpoint, then what has one or is getting one, oldest first. Not to be kept. */
  *connections(): Iterable<Inspectable> {
    yield* this.#shared.headers;
    yield* this.#shared.holds;
    yield* this.#shared.index;
  }

  useOf(endpoint: BalancerEndpoint): EndpointUse {
    return this.#shared.index.useOf(endpoint, ({ relay }) => relay);
  }

  /** Resolves when all accepted connections have ended. */
  drained(): Promise<void> {
    return this.#shared.gate.empty();
  }

  /** Ends everything at once. Call it again when sockets that were being opened are open. */
  async destroy(): Promise<void> {
    const { index, holds, headers, gate } = this.#shared;
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
    for (const connection of [...headers, ...holds, ...index]) connection.destroy();
    await gate.empty();
    await this.#transport.destroy();
  }
}

/** A listening TCP socket, or the addresses of a service port at a shared one. */
class TcpListener extends OwnedListener<TcpListening> implements AcceptOwner {
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
}

/**
 * A listening socket for clients of many addresses. Its cost for each client is a system call and a look-up, however
 * many service ports there are.
 */
class SharedSocket extends OwnedListener<TcpListening> implements AcceptOwner {
  readonly #servicePorts: SharedServicePorts<AcceptOwner>;

  constructor(
    servicePorts: SharedServicePorts<AcceptOwner>,
    spec: ListenSpec,
    owner: ServicePort,
    onClose: () => void,
  ) {
    super(spec, owner, onClose);
    this.#servicePorts = servicePorts;
  }

  accepted(client: TcpClient): void {
    const { address, port = 0 } = client.localAddress();
    const servicePort =
      this.#servicePorts.at(routeKey(this.family, address, port)) ??
      this.#servicePorts.at(routeKey(this.family, undefined, port));
    // The service port may have gone since the packet passed the rules.
    if (servicePort === undefined) client.reset();
    else servicePort.accepted(client);
  }

  /** Counted for one service port: the kernel does not say whose client was lost. */
  acceptFailed(): void {
    this.#servicePorts.any()?.acceptFailed();
  }
}
