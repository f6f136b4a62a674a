import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import { tcpAccepted } from '../../events.ts';
import type { RejectReason } from '../../counters.ts';
import type { Inspectable } from '../../inspect.ts';
import type { LoopGuard } from '../../core/loop-guard.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../../core/service-port.ts';
import type { ListenSpec } from '../../spec.ts';
import { addressText, clientAddress } from '../../tcp/addresses.ts';
import { countRejected } from '../../tcp/reject.ts';
import type { Loop } from '../loop.ts';
import { Connection } from './connection.ts';
import { TcpListener, type TcpListenerOptions } from './listener.ts';
import { createTcpShared, tcpTimes, type TcpShared } from './shared.ts';

/** How long a listener rests when there is no descriptor even to turn a client away. */
const REST_MS = 100;

/** The TCP half of the `linux` engine. */
export function createLinuxTcpAcceptor(
  loop: Loop,
  context: EngineContext,
  loops: LoopGuard,
): Acceptor {
  return new TcpAcceptor(loop, context, loops);
}

class TcpAcceptor implements Acceptor {
  readonly #loop: Loop;
  readonly #shared: TcpShared;
  readonly #listenerOptions: TcpListenerOptions;
  readonly #listeners = new Set<TcpListener>();
  /** Given up for a moment to take a client that has to be turned away. */
  #spare: number;

  constructor(loop: Loop, context: EngineContext, loops: LoopGuard) {
    this.#loop = loop;
    this.#shared = createTcpShared(loop, context, loops);
    this.#spare = loop.sys.sockets.datagram(4);
    this.#listenerOptions = {
      backlog: context.limits.backlog,
      keepAliveMs: context.limits.keepAliveMs,
      accepted: (fd, listener) => this.#accepted(fd, listener),
      exhausted: (listener) => this.#exhausted(listener),
      closed: (listener) => this.#listeners.delete(listener),
    };
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    const listener = new TcpListener(this.#loop, spec, owner, this.#listenerOptions);
    try {
      listener.start();
    } catch (error) {
      await listener.close();
      throw error;
    }
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

  drained(): Promise<void> {
    return this.#shared.gate.empty();
  }

  async destroy(): Promise<void> {
    const { index, room, gate } = this.#shared;
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
    for (const connection of [...room, ...index.all()]) connection.destroy();
    await gate.empty();
    if (this.#spare >= 0) this.#loop.sys.sockets.close(this.#spare);
    this.#spare = -1;
  }

  #accepted(fd: number, { owner, traffic, family, filter }: TcpListener): void {
    const { sockets } = this.#loop.sys;
    owner.counters.connections += 1;
    if (tcpAccepted.hasSubscribers) {
      tcpAccepted.publish({
        servicePort: owner.name,
        remoteAddress: addressText(sockets.remoteAddress(fd) ?? {}),
        localAddress: addressText(sockets.localAddress(fd) ?? {}),
      });
    }
    if (filter !== undefined && !filter(clientAddress(sockets.remoteAddress(fd) ?? {}))) {
      this.#reject(fd, owner, 'source');
    } else if (this.#shared.gate.enter()) {
      new Connection(this.#shared, fd, { owner, traffic, family }).next('no-endpoint');
    } else {
      this.#reject(fd, owner, 'limit');
    }
  }

  /** The descriptor has never been watched, so it can be closed at once. */
  #reject(fd: number, owner: ServicePort, reason: RejectReason): void {
    const { sockets } = this.#loop.sys;
    countRejected(owner, reason, () => addressText(sockets.remoteAddress(fd) ?? {}));
    sockets.reset(fd);
  }

  /**
   * The process has no descriptor left for a client. What waits has to be taken to be turned away, or
   * the listener would be ready for ever; so the spare one is used for that.
   */
  #exhausted(listener: TcpListener): boolean {
    const { sockets } = this.#loop.sys;
    if (this.#spare >= 0) sockets.close(this.#spare);
    const fd = sockets.accept(listener.fd);
    if (fd >= 0) sockets.reset(fd);
    this.#spare = sockets.datagram(4);
    countRejected(listener.owner, 'limit', '');
    if (fd >= 0) return true;
    listener.pause();
    this.#shared.clock.setTimer(REST_MS, () => {
      if (listener.isPaused) listener.start();
    });
    return false;
  }
}
