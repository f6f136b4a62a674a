import { OwnedListener } from '../core/listener.ts';
import { routeKey, routeKeys } from '../core/addresses.ts';
import { countRejected, type ServicePort } from '../core/service-port.ts';
import { tcpAccepted } from '../events.ts';
import type { ListenSpec } from '../spec.ts';
import { TcpConnection } from './connection.ts';
import { addressText } from './publish.ts';
import { TcpConnections } from './connections.ts';
import type { AcceptOwner, TcpClient } from './transport.ts';

/** The TCP half of an engine, on the sockets of a transport. */
export class TcpAcceptor extends TcpConnections {
  newListener(spec: ListenSpec, owner: ServicePort): OwnedListener {
    const Listener = spec.transparent === undefined ? TcpListener : SharedSocket;
    return new Listener(this, spec, owner);
  }

  /** Replaces the listeners at shared sockets that hand clients to a service port. */
  listenShared(listen: readonly ListenSpec[], owner: ServicePort): void {
    const routes = listen.map((spec) => {
      const listener = new TcpListener(this, spec, owner);
      // There may be 100,000 of them, with long lists, of which the listener has made its filter.
      const { sourceRanges: _, ...kept } = spec;
      listener.listen = kept;
      return [routeKeys(spec), listener] as const;
    });
    this.ofShared.route(owner.name, routes);
  }
}

/** A listening TCP socket, or the addresses of a service port at a shared one. */
class TcpListener extends OwnedListener implements AcceptOwner {
  protected readonly connections: TcpConnections;

  constructor(connections: TcpConnections, spec: ListenSpec, owner: ServicePort) {
    super(spec, owner, connections.transport);
    this.connections = connections;
  }

  accepted(client: TcpClient): void {
    const { owner } = this;
    owner.counters.connections += 1;
    if (tcpAccepted.hasSubscribers)
      tcpAccepted.publish({
        servicePort: owner.name,
        remoteAddress: addressText(client.remoteAddress()),
        localAddress: addressText(client.localAddress()),
      });
    const connection = new TcpConnection(this.connections, client, this);
    const refuse = (reason: 'source' | 'limit'): void => {
      countRejected(owner, reason, connection);
      client.reset('destroyed');
    };
    const isAnnounced = owner.announcesClients?.(connection.client) === true;
    if (!isAnnounced && !this.admits(connection)) refuse('source');
    else if (!this.connections.gate.enter()) refuse('limit');
    else if (isAnnounced) connection.startAnnounced();
    else connection.start();
  }

  acceptFailed(): void {
    countRejected(this.owner, 'limit');
  }
}

/** A socket for clients of many addresses: a system call and a look-up each, however many service ports there are. */
class SharedSocket extends TcpListener {
  override accepted(client: TcpClient): void {
    const { address, port = 0 } = client.localAddress();
    const { ofShared } = this.connections;
    const servicePort =
      ofShared.at(routeKey(this.family, address, port)) ??
      ofShared.at(routeKey(this.family, undefined, port));
    // The service port may have gone since the packet passed the rules.
    if (servicePort === undefined) client.reset('destroyed');
    else servicePort.accepted(client);
  }

  /** Counted for one service port: the kernel does not say whose client was lost. */
  override acceptFailed(): void {
    this.connections.ofShared.any()?.acceptFailed();
  }
}
