import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { KpngError } from '../../errors.ts';
import type { Heir } from '../engine.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenerSockets } from '../core/listener-sockets.ts';
import type { ListenSpec } from '../spec.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import { CappedListeners } from './capped-listeners.ts';
import { HostAddressWatch, type HostAddresses } from './host-addresses.ts';
import { UdpListener, type ListenerDeps } from './listener.ts';
import { SessionTable } from './session-table.ts';

export interface UdpAcceptorOptions {
  /** Reads the host's addresses; by default those of its network interfaces. */
  readonly hostAddresses?: () => HostAddresses;
  /** Opens the sockets of listeners. Default: Node does. */
  readonly sockets?: ListenerSockets | undefined;
}

/**
 * Opens UDP listeners and carries their sessions.
 *
 * A session is one client port at one listening socket, with a socket of its own that is connected
 * to one endpoint. It ends when it is idle, when its endpoint or service port or listener is gone,
 * when an ICMP error says that nobody listens there, or when room is needed for a newer one. The
 * client's next datagram then begins another one.
 */
export function createUdpAcceptor(
  context: EngineContext,
  options: UdpAcceptorOptions = {},
): Acceptor {
  return new UdpAcceptor(context, options);
}

class UdpAcceptor implements Acceptor {
  readonly #deps: ListenerDeps;
  readonly #listeners = new Set<UdpListener>();
  readonly #opening = new Set<Promise<unknown>>();
  #hasLeft = false;
  #destroyed: Promise<void> | undefined;

  constructor(context: EngineContext, options: UdpAcceptorOptions) {
    this.#deps = {
      context,
      table: new SessionTable(context),
      sockets: options.sockets,
      capped: new CappedListeners(context.limits.udpWildcardSockets),
      hostAddresses: new HostAddressWatch(context.clock, options.hostAddresses),
    };
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    this.#refuseWhenDestroyed(owner);
    const opening = UdpListener.open(this.#deps, spec, owner, this.#forget);
    this.#opening.add(opening);
    try {
      const listener = await opening;
      this.#listeners.add(listener);
      if (this.#destroyed !== undefined) await listener.close();
      this.#refuseWhenDestroyed(owner);
      return listener;
    } finally {
      this.#opening.delete(opening);
    }
  }

  endpointGone(owner: ServicePort, endpoint: BalancerEndpoint): void {
    this.#deps.table.endpointGone(owner, endpoint);
  }

  servicePortGone(owner: ServicePort): void {
    if (this.#hasLeft) return;
    this.#deps.table.ownerGone(owner);
  }

  leave({ served }: Heir): void {
    this.#hasLeft = true;
    for (const listener of this.#listeners) listener.leave(served);
  }

  connections(): Iterable<Inspectable> {
    return this.#deps.table.connections();
  }

  activeOf(owner: ServicePort, endpoint: BalancerEndpoint): number {
    return this.#deps.table.activeOf(owner, endpoint);
  }

  async drained(): Promise<void> {
    return this.#deps.table.drained();
  }

  async destroy(): Promise<void> {
    this.#destroyed ??= this.#destroy();
    return this.#destroyed;
  }

  async #destroy(): Promise<void> {
    this.#deps.table.destroy();
    await Promise.allSettled(this.#opening);
    await Promise.all([...this.#listeners].map(async (listener) => listener.close()));
  }

  readonly #forget = (listener: UdpListener): void => {
    this.#listeners.delete(listener);
  };

  #refuseWhenDestroyed(owner: ServicePort): void {
    if (this.#destroyed === undefined) return;
    throw new KpngError('KPNG_LISTEN_FAILED', 'the UDP acceptor has been destroyed', {
      servicePort: owner.name,
    });
  }
}
