import { newCounters } from '../../src/proxysocket/counters.ts';
import type { Engine, ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import type { EngineChange, ListenerStatus, ServicePortSpec } from '../../src/proxysocket/spec.ts';

/** Says that it listens and does not: with it only the rules cost anything. */
export class EngineWithoutSockets implements Engine {
  readonly kind = 'node';
  readonly #ports = new Map<string, { spec: ServicePortSpec; listeners: ListenerStatus[] }>();
  #nextPort = 1024;

  async apply(changes: readonly EngineChange[]): Promise<void> {
    for (const change of changes) {
      if (change.kind === 'remove') this.#ports.delete(change.name);
      if (change.kind === 'set') this.#set(change.spec);
    }
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    const wanted = names === undefined ? this.#ports.keys() : names;
    return [...wanted].flatMap((name) => {
      const port = this.#ports.get(name);
      if (port === undefined) return [];
      const { spec, listeners } = port;
      const { protocol, endpoints } = spec;
      return [{ name, protocol, listeners, endpoints: endpoints.length, counters: newCounters() }];
    });
  }

  async close(): Promise<void> {}

  async destroy(): Promise<void> {}

  #set(spec: ServicePortSpec): void {
    const listeners = spec.listen.map((listen): ListenerStatus => {
      // Ports may repeat: nothing listens there.
      this.#nextPort = this.#nextPort === 65_535 ? 1024 : this.#nextPort + 1;
      return { state: 'listening', listen, boundPort: listen.port || this.#nextPort };
    });
    this.#ports.set(spec.name, { spec, listeners });
  }
}
