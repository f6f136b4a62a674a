import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenSpec } from '../spec.ts';
import { TcpListener } from './listener.ts';
import { createTcpShared, tcpTimes, type TcpShared } from './shared.ts';
import type { TcpTransport } from './transport.ts';

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
