import type { ListenSpec } from '../proxysocket/spec.ts';
import { type Listener, ListenPlan } from './listen-plan.ts';
import type { PortAllocator } from './proxy-ports.ts';
import type { BoundPorts, Portal, PortalSpec } from './portal.ts';

export interface NonePortalOptions {
  /** IP literal of the proxy ports. Default `127.0.0.1`. */
  readonly bindAddress?: string;
  readonly allocator: PortAllocator;
}

/**
 * No portals: each service port listens on one stable proxy port, and the operator redirects traffic there.
 *
 * All traffic counts as internal and source ranges do not apply, as the redirect may hide the client's address.
 */
export class NonePortal extends ListenPlan<never> implements Portal {
  readonly kind = 'none';
  readonly #listener: Listener;

  constructor({ bindAddress: address = '127.0.0.1', allocator }: NonePortalOptions) {
    super(allocator);
    this.#listener = { address, traffic: 'internal' };
  }

  portTaken(servicePort: string, listen: ListenSpec): void {
    this.replacePort(servicePort, listen);
  }

  async commit(bound: Iterable<BoundPorts>): Promise<void> {
    this.settle(bound);
  }

  async close(): Promise<void> {
    // The sockets belong to the engine.
  }

  protected claimsOf(): never[] {
    return [];
  }

  protected listenersOf(): Listener[] {
    return [this.#listener];
  }

  protected isOnProxyPort(): boolean {
    return true;
  }

  protected portalOf(claim: never): PortalSpec {
    return claim;
  }
}
