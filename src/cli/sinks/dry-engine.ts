import { newCounters } from '../../proxysocket/counters.ts';
import type { Engine, ServicePortSnapshot } from '../../proxysocket/engine.ts';
import type {
  EngineChange,
  ListenerStatus,
  ListenSpec,
  ServicePortSpec,
} from '../../proxysocket/spec.ts';
import { formatHostPort } from '../../util/host-port.ts';

/** The first of the ports that stand for those that the kernel would choose. */
export const FIRST_MADE_UP_PORT = 50_000;

/**
 * An engine that opens nothing: it prints where it would listen, one comment for each listener. Ports
 * that the kernel would choose are made up, and the same each time.
 */
export class DryEngine implements Engine {
  readonly kind = 'node';
  readonly #write: (text: string) => Promise<void>;
  readonly #specs = new Map<string, ServicePortSpec>();
  /** By service port, address and traffic. */
  readonly #madeUp = new Map<string, number>();

  constructor(write: (text: string) => Promise<void>) {
    this.#write = write;
  }

  async apply(changes: readonly EngineChange[]): Promise<void> {
    const lines: string[] = [];
    for (const change of changes) {
      if (change.kind === 'remove') this.#specs.delete(change.name);
      if (change.kind !== 'set') continue;
      const { spec } = change;
      this.#specs.set(spec.name, spec);
      for (const listen of spec.listen) {
        const { address, traffic, sourceRanges = [] } = listen;
        const place = formatHostPort({ host: address, port: this.#portOf(spec.name, listen) });
        const only = sourceRanges.length === 0 ? '' : `, from ${sourceRanges.join(' ')} only`;
        lines.push(`# listen on ${place}/${spec.protocol} for ${spec.name} (${traffic}${only})\n`);
      }
    }
    await this.#write(lines.join(''));
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    return [...this.#specs.values()]
      .filter(({ name }) => names === undefined || names.has(name))
      .map(({ name, protocol, listen, endpoints }) => ({
        name,
        protocol,
        listeners: listen.map((each): ListenerStatus => {
          return { state: 'listening', listen: each, boundPort: this.#portOf(name, each) };
        }),
        endpoints: endpoints.length,
        counters: newCounters(),
      }));
  }

  async close(): Promise<void> {
    // Nothing is open.
  }

  async destroy(): Promise<void> {
    // Nothing is open.
  }

  #portOf(name: string, { address, port, traffic }: ListenSpec): number {
    if (port !== 0) return port;
    const key = `${name} ${address} ${traffic}`;
    const known = this.#madeUp.get(key);
    if (known !== undefined) return known;
    const made = FIRST_MADE_UP_PORT + this.#madeUp.size;
    this.#madeUp.set(key, made);
    return made;
  }
}
