import { KpngError } from '../../../errors.ts';
import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { Heir } from '../../engine.ts';
import type { Inspectable } from '../../inspect.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../../core/service-port.ts';
import type { ListenSpec } from '../../spec.ts';
import type { Loop } from '../loop.ts';
import { UdpListener } from './listener.ts';
import { createUdpShared, type UdpShared } from './shared.ts';

/** The UDP half of the `linux` engine. Sessions are as those of the `node` engine. */
export function createLinuxUdpAcceptor(loop: Loop, context: EngineContext): Acceptor {
  return new UdpAcceptor(loop, context);
}

class UdpAcceptor implements Acceptor {
  readonly #shared: UdpShared;
  readonly #listeners = new Set<UdpListener>();
  #hasLeft = false;
  #isDestroyed = false;

  constructor(loop: Loop, context: EngineContext) {
    this.#shared = createUdpShared(loop, context);
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    this.#refuseWhenDestroyed(owner);
    const listener = new UdpListener(this.#shared, spec, owner, (closed) => {
      this.#listeners.delete(closed);
    });
    this.#listeners.add(listener);
    // Whoever destroys this in the same breath does not get a listener any more.
    await Promise.resolve();
    this.#refuseWhenDestroyed(owner);
    return listener;
  }

  endpointGone(owner: ServicePort, endpoint: BalancerEndpoint): void {
    this.#shared.sessions.endpointGone(owner, endpoint);
  }

  servicePortGone(owner: ServicePort): void {
    if (this.#hasLeft) return;
    this.#shared.sessions.ownerGone(owner);
  }

  leave({ served }: Heir): void {
    this.#hasLeft = true;
    for (const listener of this.#listeners) listener.leave(served);
  }

  connections(): Iterable<Inspectable> {
    return this.#shared.sessions.connections();
  }

  activeOf(owner: ServicePort, endpoint: BalancerEndpoint): number {
    return this.#shared.sessions.activeOf(owner, endpoint);
  }

  drained(): Promise<void> {
    return this.#shared.sessions.drained();
  }

  async destroy(): Promise<void> {
    this.#isDestroyed = true;
    this.#shared.sessions.destroy();
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
  }

  #refuseWhenDestroyed(owner: ServicePort): void {
    if (!this.#isDestroyed) return;
    throw new KpngError('KPNG_LISTEN_FAILED', 'the UDP acceptor has been destroyed', {
      servicePort: owner.name,
    });
  }
}
