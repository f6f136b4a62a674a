import { isIPv6 } from 'node:net';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { Engine, ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { listenerClosed, listenerFailed, listenerOpened } from '../../src/proxysocket/events.ts';
import type {
  EndpointSpec,
  EngineChange,
  ListenerStatus,
  ListenSpec,
  Protocol,
  ServicePortSpec,
  Traffic,
} from '../../src/proxysocket/spec.ts';
import { listenCode } from '../../src/util/listen-failure.ts';

/** Where a connection comes out, as far as an engine decides it. */
export interface Landing {
  readonly servicePort: string;
  readonly traffic: Traffic;
  /** Endpoints that may serve it, as `ip:port`. */
  readonly endpoints: readonly string[];
}

interface Listener {
  owner: string;
  readonly protocol: Protocol;
  listen: ListenSpec;
  readonly boundPort: number;
  /** Why it is not open. */
  readonly cause: string | undefined;
}

/**
 * An engine without sockets on a make-believe Linux host. It keeps to the contract of an engine,
 * throws when a batch does not, and reports where a connection would land.
 */
export class FakeEngine implements Engine {
  readonly kind = 'node';
  /** Every batch that was applied, or tried. */
  readonly batches: (readonly EngineChange[])[] = [];
  /** Addresses of the host besides 127.0.0.0/8 and ::1. */
  readonly addresses = new Set<string>();
  /** System errors, by `address:port/PROTOCOL`. */
  readonly errors = new Map<string, string>();
  /** Addresses that were opened and closed, in order: `+address` and `-address`. */
  readonly log: string[] = [];
  /** Makes the next batch reject after so many of its changes. */
  failAfter: number | undefined;

  readonly #specs = new Map<string, ServicePortSpec>();
  readonly #listeners = new Map<string, Listener>();
  #nextPort: number;

  /** `firstPort`: what the first listener gets that asks for any port. */
  constructor(firstPort = 40_000) {
    this.#nextPort = firstPort;
  }

  async apply(changes: readonly EngineChange[]): Promise<void> {
    this.batches.push(changes);
    const failAfter = this.failAfter;
    this.failAfter = undefined;
    const done = failAfter === undefined ? changes : changes.slice(0, failAfter);
    for (const change of done) if (change.kind === 'remove') this.#specs.delete(change.name);
    for (const change of done) {
      if (change.kind === 'set') this.#specs.set(change.spec.name, change.spec);
      if (change.kind === 'endpoints') {
        const spec = this.#specs.get(change.name);
        if (spec === undefined) throw new Error(`endpoints for ${change.name}, which is not set`);
        this.#specs.set(change.name, { ...spec, endpoints: change.endpoints });
      }
    }
    this.#settle();
    if (failAfter !== undefined) throw new Error('the engine broke down');
  }

  /** Tries the listeners that failed once more. */
  retry(): void {
    this.#settle();
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    return [...this.#specs.values()]
      .filter(({ name }) => names === undefined || names.has(name))
      .map(({ name, protocol, endpoints }) => ({
        name,
        protocol,
        listeners: this.#listenersOf(name),
        endpoints: endpoints.length,
        counters: newCounters(),
      }));
  }

  async close(): Promise<void> {
    this.#specs.clear();
    this.#settle();
  }

  async destroy(): Promise<void> {
    await this.close();
  }

  /** What a connection, or a datagram, to a place meets; undefined when no one listens there. */
  lands(address: string, port: number, protocol: Protocol = 'TCP'): Landing | undefined {
    const wildcard = isIPv6(address) ? '::' : '0.0.0.0';
    const all = this.#open().filter(
      (each) => each.protocol === protocol && each.boundPort === port,
    );
    const found =
      all.find(({ listen }) => listen.address === address) ??
      all.find(({ listen }) => listen.address === wildcard && this.#has(address));
    const spec = found && this.#specs.get(found.owner);
    if (found === undefined || spec === undefined) return undefined;
    const { traffic } = found.listen;
    const endpoints = spec.endpoints.filter((each) => each[traffic]).map(textOf);
    return { servicePort: spec.name, traffic, endpoints };
  }

  /** What there is, as plain data in a fixed order. */
  state(): unknown {
    const sockets = this.#open().map(
      ({ owner, protocol, listen }) => `${owner} ${protocol} ${JSON.stringify(listen)}`,
    );
    const specs = [...this.#specs.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    return { specs, sockets: sockets.sort() };
  }

  #open(): Listener[] {
    return [...this.#listeners.values()].filter(({ cause }) => cause === undefined);
  }

  /** Brings the listeners in line with the specs: closes first, then opens, also what has failed before. */
  #settle(): void {
    const wanted = new Map<string, Pick<Listener, 'owner' | 'protocol' | 'listen'>>();
    for (const { name, protocol, listen } of this.#specs.values()) {
      for (const each of listen) {
        const key = keyOf(name, protocol, each);
        if (wanted.has(key)) throw new Error(`${key} is wanted twice, by ${name} as well`);
        wanted.set(key, { owner: name, protocol, listen: each });
      }
    }
    for (const [key, listener] of this.#listeners) {
      const isOpen = listener.cause === undefined;
      if (isOpen && wanted.has(key)) continue;
      this.#listeners.delete(key);
      if (!isOpen) continue;
      this.log.push(`-${key}`);
      listenerClosed.publish({ servicePort: listener.owner, ...listener });
    }
    for (const [key, { owner, protocol, listen }] of wanted) {
      const open = this.#listeners.get(key);
      if (open !== undefined) {
        Object.assign(open, { owner, listen });
        continue;
      }
      const cause = this.#bindError(protocol, listen);
      const boundPort = cause === undefined && listen.port === 0 ? this.#nextPort++ : listen.port;
      this.#listeners.set(key, { owner, protocol, listen, boundPort, cause });
      const about = { servicePort: owner, protocol, listen };
      if (cause === undefined) {
        this.log.push(`+${key}`);
        listenerOpened.publish(about);
      } else {
        const error = Object.assign(new Error(`bind ${cause}`), { code: cause });
        listenerFailed.publish({ ...about, code: listenCode(cause), error, retryInMs: 1000 });
      }
    }
  }

  #bindError(protocol: Protocol, { address, port }: ListenSpec): string | undefined {
    const error = this.errors.get(`${address}:${port}/${protocol}`);
    if (error !== undefined) return error;
    if (address !== '0.0.0.0' && address !== '::' && !this.#has(address)) return 'EADDRNOTAVAIL';
    const isTaken = this.#open().some(
      (other) =>
        other.protocol === protocol &&
        other.boundPort === port &&
        overlap(other.listen.address, address),
    );
    return isTaken ? 'EADDRINUSE' : undefined;
  }

  #has(address: string): boolean {
    return address.startsWith('127.') || address === '::1' || this.addresses.has(address);
  }

  #listenersOf(name: string): ListenerStatus[] {
    return [...this.#listeners.values()]
      .filter(({ owner }) => owner === name)
      .map(({ listen, boundPort, cause }) =>
        cause === undefined
          ? { state: 'listening', listen, boundPort }
          : { state: 'failed', listen, code: listenCode(cause), cause },
      );
  }
}

/** Whether the second bind of two addresses with one port fails on Linux. */
export function overlap(a: string, b: string): boolean {
  if (isIPv6(a) !== isIPv6(b)) return false;
  return a === b || [a, b].some((each) => each === '0.0.0.0' || each === '::');
}

function textOf({ address, port }: EndpointSpec): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Port 0 is no one's in particular. */
function keyOf(name: string, protocol: Protocol, { address, port, traffic }: ListenSpec): string {
  return port === 0
    ? `${address}:0/${protocol} of ${name}, ${traffic}`
    : `${address}:${port}/${protocol}`;
}
