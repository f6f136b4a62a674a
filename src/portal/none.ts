import type { ListenSpec } from '../proxysocket/spec.ts';
import { type PortAllocator, type ProxyListener, ProxyPorts } from './proxy-ports.ts';
import type { BoundPorts, Portal, PortalPlan, ServicePortPortals } from './portal.ts';

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
export class NonePortal implements Portal {
  readonly kind = 'none';
  readonly #listener: ProxyListener;
  readonly #ports: ProxyPorts;

  constructor(options: NonePortalOptions) {
    const address = options.bindAddress ?? '127.0.0.1';
    this.#listener = { address, traffic: 'internal' };
    this.#ports = new ProxyPorts(options.allocator);
  }

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const needed = new Map<string, readonly ProxyListener[]>(remove.map((name) => [name, []]));
    for (const { servicePort } of set) needed.set(servicePort, [this.#listener]);
    const changed = [...this.#ports.update(needed)];
    const listen = changed.map((name) => [name, this.#ports.listen(name)] as const);
    return {
      listen: new Map(listen.filter(([, list]) => list.length > 0)),
      problems: this.#ports.problems(),
    };
  }

  portTaken(servicePort: string, listen: ListenSpec): void {
    this.#ports.portTaken(servicePort, listen);
  }

  async commit(bound: Iterable<BoundPorts>): Promise<void> {
    for (const [name, list] of bound) {
      for (const { boundPort } of list) this.#ports.opened(name, boundPort);
    }
  }

  async close(): Promise<void> {
    // The sockets belong to the engine.
  }
}
