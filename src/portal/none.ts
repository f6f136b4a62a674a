import type { ListenSpec } from '../proxysocket/spec.ts';
import { formerKey, type PortAllocator } from './port-allocator.ts';
import type { Portal, PortalPlan, ServicePortPortals } from './portal.ts';

export interface NonePortalOptions {
  /** IP literal of the proxy ports. Default `127.0.0.1`. */
  readonly bindAddress?: string;
  readonly allocator: PortAllocator;
}

/**
 * No portals: each service port listens on one proxy port, and whoever runs the program leads
 * traffic there. The port stays the same as long as the service port exists.
 *
 * All traffic counts as internal, and source ranges are not applied, because clients are seen with
 * the address that the redirect gives them.
 */
export class NonePortal implements Portal {
  readonly kind = 'none';
  readonly #address: string;
  readonly #allocator: PortAllocator;
  /** Port by service port; undefined while it waits for one. */
  readonly #ports = new Map<string, number | undefined>();
  readonly #waiting = new Set<string>();

  /** Ports that other programs hold, by service port. */
  readonly #foreign = new Map<string, number>();

  constructor(options: NonePortalOptions) {
    this.#address = options.bindAddress ?? '127.0.0.1';
    this.#allocator = options.allocator;
  }

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    for (const name of remove) {
      const port = this.#ports.get(name);
      if (port !== undefined) this.#allocator.release(port);
      this.#ports.delete(name);
      this.#waiting.delete(name);
      this.#foreign.delete(name);
    }
    for (const [name, port] of this.#foreign) {
      if (!this.#allocator.hasOther) break;
      this.#foreign.delete(name);
      if (this.#ports.get(name) !== port) continue;
      this.#allocator.reject(port);
      this.#ports.set(name, undefined);
      this.#waiting.add(name);
    }
    for (const { servicePort } of set) {
      if (this.#ports.has(servicePort)) continue;
      this.#ports.set(servicePort, undefined);
      this.#waiting.add(servicePort);
    }
    const listen = new Map<string, readonly ListenSpec[]>();
    for (const name of [...this.#waiting].sort()) {
      const port = this.#allocator.allocate(formerKey(name, this.#address, 'internal'));
      if (port === undefined) break;
      this.#ports.set(name, port);
      this.#waiting.delete(name);
      listen.set(name, [{ address: this.#address, port, traffic: 'internal' }]);
    }
    return { listen, problems: [...this.#waiting].map((name) => this.#allocator.exhausted(name)) };
  }

  portTaken(servicePort: string, { port }: ListenSpec): void {
    this.#foreign.set(servicePort, port);
  }

  async commit(): Promise<void> {
    // Nothing leads to the proxy ports.
  }

  async close(): Promise<void> {
    // The sockets belong to the engine.
  }
}
