import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { familyOf, type Family } from '../../util/family.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import { sourceFilter, type SourceFilter } from '../core/source-ranges.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import { addressText, clientAddress, countRejected, publishAccepted } from './publish.ts';
import { TcpConnection } from './connection.ts';
import { createTcpShared, tcpTimes, type TcpShared } from './shared.ts';
import type { TcpTransport, AcceptOwner, TcpClient, TcpListening } from './transport.ts';

/** The TCP half of an engine, on the sockets of a transport. `loops` knows endpoints that lead back to their service. */
export function createTcpAcceptor(
  transport: TcpTransport,
  context: EngineContext,
  loops: LoopGuard,
): Acceptor {
  return new TcpAcceptor(transport, context, loops);
}

class TcpAcceptor implements Acceptor {
  readonly #transport: TcpTransport;
  readonly #shared: TcpShared;
  readonly #listeners = new Set<TcpListener>();

  constructor(transport: TcpTransport, context: EngineContext, loops: LoopGuard) {
    this.#transport = transport;
    this.#shared = createTcpShared(context, transport, loops);
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    const listener = new TcpListener(this.#shared, spec, owner, (closed) =>
      this.#listeners.delete(closed),
    );
    await listener.open(this.#transport, spec);
    this.#listeners.add(listener);
    return listener;
  }

  limitsChanged(): void {
    Object.assign(this.#shared, tcpTimes(this.#shared, this.#transport));
    this.#shared.holds.limitsChanged();
  }

  endpointGone(_owner: ServicePort, endpoint: BalancerEndpoint): void {
    for (const connection of this.#shared.index.of(endpoint)) connection.endpointGone();
  }

  endpointsChanged(owner: ServicePort): void {
    this.#shared.holds.endpointsChanged(owner);
  }

  /** Established relays run on, as they do in kube-proxy's userspace mode. */
  servicePortGone(owner: ServicePort): void {
    this.#shared.holds.servicePortGone(owner);
  }

  *connections(): Iterable<Inspectable> {
    yield* this.#shared.holds;
    yield* this.#shared.index;
  }

  activeOf(_owner: ServicePort, endpoint: BalancerEndpoint): number {
    return this.#shared.index.countOf(endpoint);
  }

  cut(): void {
    const { index, holds } = this.#shared;
    for (const connection of [...holds, ...index.all()]) connection.destroy();
  }

  drained(): Promise<void> {
    return this.#shared.gate.empty();
  }

  async destroy(): Promise<void> {
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
    this.cut();
    await this.#shared.gate.empty();
    await this.#transport.destroy();
  }
}

/** A listening TCP socket: lets clients in, for the service port that has it now. */
export class TcpListener implements Listener, AcceptOwner {
  readonly protocol = 'TCP';
  readonly address: string;
  readonly family: Family;
  readonly #shared: TcpShared;
  readonly #port: number;
  readonly #closed: (listener: TcpListener) => void;
  #listening: TcpListening | undefined;
  #owner: ServicePort;
  #traffic: Traffic;
  #filter: SourceFilter | undefined;

  /** `open` has to follow. `closed` is called when it does not listen any more. */
  constructor(
    shared: TcpShared,
    spec: ListenSpec,
    owner: ServicePort,
    closed: (listener: TcpListener) => void,
  ) {
    this.#shared = shared;
    this.#closed = closed;
    this.address = spec.address;
    this.family = familyOf(spec.address);
    this.#port = spec.port;
    this.#owner = owner;
    this.#traffic = spec.traffic;
    this.#filter = sourceFilter(owner.name, spec.sourceRanges);
  }

  get boundPort(): number {
    return this.#listening?.boundPort ?? this.#port;
  }

  /** Rejects with the system's error. */
  async open(transport: TcpTransport, spec: ListenSpec): Promise<void> {
    this.#listening = await transport.listen(spec, this);
  }

  assign(owner: ServicePort, traffic: Traffic, sourceRanges?: readonly string[]): void {
    this.#owner = owner;
    this.#traffic = traffic;
    this.#filter = sourceFilter(owner.name, sourceRanges);
  }

  accepted(client: TcpClient): void {
    const owner = this.#owner;
    const { gate } = this.#shared;
    owner.counters.connections += 1;
    publishAccepted(owner, client);
    if (this.#filter !== undefined && !this.#filter(clientAddress(client.remoteAddress()))) {
      this.#reject(client, 'source');
    } else if (gate.enter()) {
      const origin = { owner, traffic: this.#traffic, family: this.family };
      new TcpConnection(this.#shared, client, origin).start();
    } else {
      this.#reject(client, 'limit');
    }
  }

  acceptFailed(): void {
    countRejected(this.#owner, 'limit');
  }

  async close(): Promise<void> {
    this.#closed(this);
    await this.#listening?.close();
  }

  #reject(client: TcpClient, reason: 'source' | 'limit'): void {
    countRejected(this.#owner, reason, {
      get remoteAddress() {
        return addressText(client.remoteAddress());
      },
    });
    client.reset();
  }
}
