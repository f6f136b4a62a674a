import { OwnedListener } from '../core/listener.ts';
import { routeKey, routeKeys, type SharedServicePorts } from '../core/shared-service-ports.ts';
import { countRejected, type ServicePort } from '../core/service-port.ts';
import type { ListenSpec } from '../spec.ts';
import { TcpConnection } from './connection.ts';
import { publishAccepted } from './publish.ts';
import { TcpConnections } from './connections.ts';
import type { AcceptOwner, TcpClient } from './transport.ts';

/** The TCP half of an engine, on the sockets of a transport. */
export class TcpAcceptor extends TcpConnections {
  async listen(spec: ListenSpec, owner: ServicePort): Promise<OwnedListener> {
    const Listener = spec.transparent === undefined ? TcpListener : SharedSocket;
    const listener = new Listener(this, spec, owner);
    await listener.open(this.transport.listen(spec, listener));
    return listener;
  }

  /** Replaces the listeners at shared sockets that hand clients to a service port. */
  listenShared(listen: readonly ListenSpec[], owner: ServicePort): void {
    const routes = listen.map((spec) => {
      return [routeKeys(spec), new TcpListener(this, spec, owner)] as const;
    });
    this.ofShared.route(owner.name, routes);
  }
}

/** A listening TCP socket, or the addresses of a service port at a shared one. */
class TcpListener extends OwnedListener implements AcceptOwner {
  readonly #connections: TcpConnections;

  constructor(connections: TcpConnections, spec: ListenSpec, owner: ServicePort) {
    super(spec, owner, connections.listeners);
    this.#connections = connections;
  }

  accepted(client: TcpClient): void {
    const { owner } = this;
    owner.counters.connections += 1;
    publishAccepted(owner, client);
    const connection = new TcpConnection(this.#connections, client, owner, this);
    const refuse = (reason: 'source' | 'limit'): void => {
      countRejected(owner, reason, connection);
      client.reset();
    };
    const isAnnounced = owner.announcesClients?.(connection.client) === true;
    if (!isAnnounced && !this.admits(connection)) refuse('source');
    else if (!this.#connections.gate.enter()) refuse('limit');
    else if (isAnnounced) connection.startAnnounced();
    else connection.start();
  }

  acceptFailed(): void {
    countRejected(this.owner, 'limit');
  }
}

/** A socket for clients of many addresses: a system call and a look-up each, however many service ports there are. */
class SharedSocket extends OwnedListener implements AcceptOwner {
  readonly #servicePorts: SharedServicePorts<AcceptOwner>;

  constructor({ ofShared, listeners }: TcpConnections, spec: ListenSpec, owner: ServicePort) {
    super(spec, owner, listeners);
    this.#servicePorts = ofShared;
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
