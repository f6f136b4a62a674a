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

/** Where a connection comes out, as far as an engine decides it. */
export interface Landing {
  readonly servicePort: string;
  readonly traffic: Traffic;
  /** Endpoints that may serve it, as `ip:port`. */
  readonly endpoints: readonly string[];
}

interface Socket {
  owner: string;
  protocol: Protocol;
  listen: ListenSpec;
  boundPort: number;
}

const CODES: Readonly<Record<string, string>> = {
  EADDRNOTAVAIL: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
  EADDRINUSE: 'KPNG_LISTEN_ADDRESS_IN_USE',
  EACCES: 'KPNG_LISTEN_PERMISSION',
};

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
  readonly #sockets = new Map<string, Socket>();
  readonly #failed = new Map<string, Socket & { cause: string }>();
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
    const all = [...this.#sockets.values()].filter(
      (socket) => socket.protocol === protocol && socket.boundPort === port,
    );
    const socket =
      all.find(({ listen }) => listen.address === address) ??
      all.find(({ listen }) => listen.address === wildcard && this.#has(address));
    const spec = socket && this.#specs.get(socket.owner);
    if (socket === undefined || spec === undefined) return undefined;
    const { traffic } = socket.listen;
    const endpoints = spec.endpoints.filter((each) => each[traffic]).map(textOf);
    return { servicePort: spec.name, traffic, endpoints };
  }

  /** What there is, as plain data in a fixed order. */
  state(): unknown {
    const sockets = [...this.#sockets.values()].map(
      ({ owner, protocol, listen }) => `${owner} ${protocol} ${JSON.stringify(listen)}`,
    );
    const specs = [...this.#specs.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    return { specs, sockets: sockets.sort() };
  }

  /** Brings the sockets in line with the specs: closes first, then opens. */
  #settle(): void {
    const wanted = new Map<string, Omit<Socket, 'boundPort'>>();
    for (const { name, protocol, listen } of this.#specs.values()) {
      for (const each of listen) {
        const key = keyOf(name, protocol, each);
        if (wanted.has(key)) throw new Error(`${key} is wanted twice, by ${name} as well`);
        wanted.set(key, { owner: name, protocol, listen: each });
      }
    }
    for (const [key, socket] of this.#sockets) {
      if (wanted.has(key)) continue;
      this.#sockets.delete(key);
      this.log.push(`-${key}`);
      listenerClosed.publish({ servicePort: socket.owner, ...socket });
    }
    this.#failed.clear();
    for (const [key, { owner, protocol, listen }] of wanted) {
      const open = this.#sockets.get(key);
      if (open !== undefined) {
        open.owner = owner;
        open.listen = listen;
        continue;
      }
      const cause = this.#bindError(protocol, listen);
      const about = { servicePort: owner, protocol, listen };
      if (cause === undefined) {
        const boundPort = listen.port === 0 ? this.#nextPort++ : listen.port;
        this.#sockets.set(key, { owner, protocol, listen, boundPort });
        this.log.push(`+${key}`);
        listenerOpened.publish(about);
      } else {
        this.#failed.set(key, { owner, protocol, listen, boundPort: 0, cause });
        const error = Object.assign(new Error(`bind ${cause}`), { code: cause });
        const code = CODES[cause] ?? 'KPNG_LISTEN_FAILED';
        listenerFailed.publish({ ...about, code, error, retryInMs: 1000 });
      }
    }
  }

  #bindError(protocol: Protocol, listen: ListenSpec): string | undefined {
    const { address, port } = listen;
    const error = this.errors.get(`${address}:${port}/${protocol}`);
    if (error !== undefined) return error;
    if (address !== '0.0.0.0' && address !== '::' && !this.#has(address)) return 'EADDRNOTAVAIL';
    for (const other of this.#sockets.values()) {
      if (
        other.protocol === protocol &&
        other.boundPort === port &&
        overlap(other.listen.address, address)
      ) {
        return 'EADDRINUSE';
      }
    }
    return undefined;
  }

  #has(address: string): boolean {
    return address.startsWith('127.') || address === '::1' || this.addresses.has(address);
  }

  #listenersOf(name: string): ListenerStatus[] {
    const open = [...this.#sockets.values()]
      .filter(({ owner }) => owner === name)
      .map(({ listen, boundPort }) => ({ state: 'listening' as const, listen, boundPort }));
    const failed = [...this.#failed.values()]
      .filter(({ owner }) => owner === name)
      .map(({ listen, cause }) => ({
        state: 'failed' as const,
        listen,
        code: CODES[cause] ?? 'KPNG_LISTEN_FAILED',
        cause,
      }));
    return [...open, ...failed];
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
