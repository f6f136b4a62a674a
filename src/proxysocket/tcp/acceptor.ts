import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { OwnedListener } from '../core/listener.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { EndpointUse } from '../core/endpoint-index.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenSpec } from '../spec.ts';
import { TcpConnection } from './connection.ts';
import { addressText, clientAddress, countRejected, publishAccepted } from './publish.ts';
import { createTcpShared, tcpTimes, type TcpShared } from './shared.ts';
import type {
  AcceptOwner,
  KnownAddress,
  TcpClient,
  TcpListening,
  TcpTransport,
} from './transport.ts';

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
  }

  *connections(): Iterable<Inspectable> {
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
    const { index, holds, headers, gate } = this.#shared;
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
    headers.destroy();
    for (const connection of [...holds, ...index.all()]) connection.destroy();
    await gate.empty();
    await this.#transport.destroy();
  }
}

/** A listening TCP socket. */
class TcpListener extends OwnedListener<TcpListening> implements AcceptOwner {
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
    if (owner.announcesClients?.(clientAddress(client.remoteAddress())) === true) {
      this.#readHeader(client);
    } else if (!this.#admits(client)) this.#reject(client, 'source');
    else if (this.#shared.gate.enter()) this.#serve(client);
    else this.#reject(client, 'limit');
  }

  acceptFailed(): void {
    countRejected(this.owner, 'limit');
  }

  /** The load balancer first sends a header that names the client. */
  #readHeader(client: TcpClient): void {
    const { gate, headers } = this.#shared;
    if (!gate.enter()) {
      this.#reject(client, 'limit');
      return;
    }
    const reject = (reason: 'source' | 'proxy-header'): void => {
      gate.leave();
      this.#reject(client, reason);
    };
    headers.read(client, {
      announced: (source) => {
        if (this.#admits(client, source)) this.#serve(client, source);
        else reject('source');
      },
      unannounced: () => reject('proxy-header'),
      gone: () => {
        client.reset();
        gate.leave();
      },
    });
  }

  #admits(client: TcpClient, source?: KnownAddress): boolean {
    return this.filter?.(clientAddress(source ?? client.remoteAddress())) ?? true;
  }

  /** The gate has let it in. */
  #serve(client: TcpClient, source?: KnownAddress): void {
    // Reading the address costs a system call.
    const traffic = this.asksClient
      ? this.trafficOf(clientAddress(source ?? client.remoteAddress()))
      : this.traffic;
    const origin = { owner: this.owner, traffic, family: this.family, announced: source };
    new TcpConnection(this.#shared, client, origin).start();
  }

  #reject(client: TcpClient, reason: 'source' | 'limit' | 'proxy-header'): void {
    countRejected(this.owner, reason, {
      get remoteAddress() {
        return addressText(client.remoteAddress());
      },
    });
    client.reset();
  }
}
