import { setImmediate } from 'node:timers/promises';
import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { tcpAccepted } from '../events.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenerSockets } from '../core/listener-sockets.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import type { ListenSpec } from '../spec.ts';
import { addressText, clientAddress } from './addresses.ts';
import { TcpConnection } from './connection.ts';
import type { Incoming } from './incoming.ts';
import { openTcpListener, type TcpListener, type TcpListenerOptions } from './listener.ts';
import { countRejected, rejectClient } from './reject.ts';
import { createTcpShared, tcpTimes, type TcpShared } from './shared.ts';

export interface TcpAcceptorOptions {
  /**
   * Use only what Node documents: accepted sockets then emit 'data' instead of reading into buffers of
   * ours. Correct, but bulk data from clients costs more than twice the CPU.
   */
  readonly documentedOnly?: boolean;
  /** Is asked about endpoints. Default: knows of no loop. */
  readonly loops?: LoopGuard;
  /** Opens the sockets of listeners. Default: Node does. */
  readonly sockets?: ListenerSockets | undefined;
}

/** The TCP half of the `node` engine. */
export function createTcpAcceptor(
  context: EngineContext,
  options: TcpAcceptorOptions = {},
): Acceptor {
  return new TcpAcceptor(context, options);
}

class TcpAcceptor implements Acceptor {
  readonly #shared: TcpShared;
  readonly #listenerOptions: TcpListenerOptions;
  readonly #listeners = new Set<TcpListener>();

  constructor(context: EngineContext, options: TcpAcceptorOptions) {
    const { documentedOnly = false, loops, sockets } = options;
    this.#shared = createTcpShared(context, loops);
    this.#listenerOptions = {
      backlog: context.limits.backlog,
      keepAliveMs: context.limits.keepAliveMs,
      documentedOnly,
      sockets,
      accepted: (incoming, listener) => this.#accepted(incoming, listener),
      acceptFailed: ({ owner }) => {
        countRejected(owner, 'limit', '');
      },
      closed: (listener) => this.#listeners.delete(listener),
    };
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    const listener = await openTcpListener(spec, owner, this.#listenerOptions);
    this.#listeners.add(listener);
    return listener;
  }

  limitsChanged(): void {
    Object.assign(this.#shared, tcpTimes(this.#shared));
    this.#shared.room.limitsChanged();
  }

  endpointGone(_owner: ServicePort, endpoint: BalancerEndpoint): void {
    for (const connection of this.#shared.index.of(endpoint)) connection.endpointGone();
  }

  endpointsChanged(owner: ServicePort): void {
    this.#shared.room.endpointsChanged(owner);
  }

  /** Established relays run on, as they do in kube-proxy's userspace mode. */
  servicePortGone(owner: ServicePort): void {
    this.#shared.room.servicePortGone(owner);
  }

  *connections(): Iterable<Inspectable> {
    yield* this.#shared.room;
    yield* this.#shared.index;
  }

  activeOf(_owner: ServicePort, endpoint: BalancerEndpoint): number {
    return this.#shared.index.countOf(endpoint);
  }

  cut(): void {
    const { index, room } = this.#shared;
    for (const connection of [...room, ...index.all()]) connection.destroy();
  }

  drained(): Promise<void> {
    return this.#shared.gate.empty();
  }

  async destroy(): Promise<void> {
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
    this.cut();
    await this.#shared.gate.empty();
    // The last handles are closed in the next turn of the loop.
    await setImmediate();
  }

  #accepted(incoming: Incoming, { owner, traffic, family, filter }: TcpListener): void {
    owner.counters.connections += 1;
    this.#shared.memory.way.accepted();
    if (tcpAccepted.hasSubscribers) {
      tcpAccepted.publish({
        servicePort: owner.name,
        remoteAddress: addressText(incoming.remote()),
        localAddress: addressText(incoming.local()),
      });
    }
    if (filter !== undefined && !filter(clientAddress(incoming.remote()))) {
      rejectClient(owner, incoming, 'source');
    } else if (this.#shared.gate.enter()) {
      new TcpConnection(this.#shared, incoming, { owner, traffic, family }).start();
    } else {
      rejectClient(owner, incoming, 'limit');
    }
  }
}
