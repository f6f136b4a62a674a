import { closeSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import { AcceptorEngine } from '../../src/proxysocket/acceptor-engine.ts';
import { takeInherited } from '../../src/util/inherited.ts';
import type { ServicePortCounters } from '../../src/proxysocket/counters.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import type {
  EngineChange,
  ListenSpec,
  Protocol,
  ServicePortSpec,
  Traffic,
} from '../../src/proxysocket/spec.ts';
import type { AcceptOwner, ClientOwner } from '../../src/proxysocket/tcp/transport.ts';
import { endpointText, type BalancerEndpoint } from '../../src/roundrobin/endpoint.ts';
import { FakeClock } from './fake-clock.ts';

/** Whether the second bind of two addresses with one port fails on Linux. */
export function overlap(a: string, b: string): boolean {
  if (isIPv6(a) !== isIPv6(b)) return false;
  return a === b || [a, b].some((each) => each === '0.0.0.0' || each === '::');
}

/**
 * Listening sockets of one protocol on a make-believe host, where an address and its wildcard are in each other's way
 * as on Linux. It reports what was opened and closed.
 */
class FakeSockets {
  /** `+place` and `-place`, in order. */
  readonly log: string[] = [];
  /** System errors, by `address:port`, or by the address alone for any port. */
  readonly errors = new Map<string, string>();
  /** Tries to listen, successful or not. */
  attempts = 0;
  /** Who gets the clients of the last socket that was opened. */
  owner: unknown;
  readonly #open = new Set<{ readonly address: string; readonly port: number }>();
  #nextPort = 40_000;

  readonly #has: (address: string) => boolean;

  constructor(has: (address: string) => boolean) {
    this.#has = has;
  }

  get size(): number {
    return this.#open.size;
  }

  async listen({ address, port: asked, transparent }: ListenSpec, owner: unknown) {
    this.attempts += 1;
    const port = asked === 0 ? (this.#nextPort += 1) : asked;
    const place = transparent === undefined ? `${address}:${port}` : 'shared';
    const fd = takeInherited('TCP', address, port);
    const isTaken = [...this.#open].some(
      (other) => fd === undefined && other.port === port && overlap(other.address, address),
    );
    const missing = this.#has(address) ? undefined : 'EADDRNOTAVAIL';
    const known = this.errors.get(place) ?? this.errors.get(address) ?? missing;
    const error = known ?? (isTaken ? 'EADDRINUSE' : undefined);
    if (error !== undefined) throw Object.assign(new Error(`listen ${error}`), { code: error });
    const socket = { address, port };
    this.#open.add(socket);
    this.owner = owner;
    this.log.push(`+${place}`);
    return {
      boundPort: port,
      sessions: () => [],
      leave() {},
      close: async () => {
        if (!this.#open.has(socket)) return;
        this.log.push(`-${place}`);
        // The port is free only a moment later.
        await new Promise(setImmediate);
        this.#open.delete(socket);
        if (fd !== undefined) closeSync(fd);
      },
    };
  }
}

export type FakeDial = ReturnType<typeof fakeDial>;

/** An attempt to connect, or the relay that it became, which a test brings on. */
function fakeDial(endpoint: BalancerEndpoint, client: FakeClient) {
  const dial = {
    endpoint,
    owner: client.owner,
    /** What the test finds out: `abandon`, or `reset` with the reason. It does not end before the test says so. */
    log: [] as string[],
    /** What the relay reports as `unsent`. */
    queued: 0,
    localAddress: () => ({ address: '192.0.2.9', port: 2 }),
    abandon: () => void dial.log.push('abandon'),
    relay: () => void (client.relayed = dial),
  };
  return dial;
}

type FakeClient = { owner: ClientOwner; relayed: FakeDial | undefined };

/** A client whose connection attempts fail at once, with a code, or else when the test says so. */
function fakeClient(local: string, code: string, header: Uint8Array) {
  const client = {
    owner: undefined as unknown as ClientOwner,
    relayed: undefined as FakeDial | undefined,
    /** The address that each endpoint was to see. */
    sources: [] as (string | undefined)[],
    dials: [] as FakeDial[],
    /** How often its address was read. */
    asked: 0,
    resets: 0,
    bytesIn: 0,
    bytesOut: 0,
    remoteAddress() {
      client.asked += 1;
      return { address: '192.0.2.1', port: 1 };
    },
    localAddress: () => ({ address: local, port: 80 }),
    reset(reason: string) {
      if (client.relayed === undefined) client.resets += 1;
      else client.relayed.log.push(`reset ${reason}`);
    },
    hold() {},
    release() {},
    readHead() {
      client.owner.head(header);
      client.owner.headTaken();
    },
    dial(endpoint: BalancerEndpoint, source?: string): FakeDial | Error {
      client.sources.push(source);
      if (code !== '') return Object.assign(new Error(code), { code });
      const dial = fakeDial(endpoint, client);
      client.dials.push(dial);
      return dial;
    },
    unsent: () => client.relayed?.queued ?? 0,
    keepAlive() {},
  };
  return client;
}

/** Where a connection comes out, as far as an engine decides it. */
export interface Landing {
  readonly servicePort: string;
  readonly traffic: Traffic;
  /** Endpoints that may serve it, as `ip:port`. */
  readonly endpoints: readonly string[];
}

interface FakeHostOptions {
  readonly descriptors?: number;
  readonly kind?: AcceptorEngine['kind'];
  /** Addresses of the host besides loopback ones and wildcards. Default: all. */
  readonly addresses?: Set<string>;
}

/** An engine on fake sockets and a fake clock, which reports where a connection would land, and makes clients. */
export class FakeHost extends AcceptorEngine {
  declare readonly clock: FakeClock;
  declare readonly tcp: FakeSockets;
  declare readonly udp: FakeSockets;
  readonly addresses: Set<string>;
  /** Every batch that was applied, or tried. */
  readonly batches: (readonly EngineChange[])[] = [];
  /** Makes the next batch reject after so many of its changes. */
  failAfter: number | undefined;
  readonly #specs = new Map<string, ServicePortSpec>();
  readonly #has: (address: string) => boolean;

  constructor({ descriptors = 100_000, kind = 'node', addresses }: FakeHostOptions = {}) {
    const clock = new FakeClock();
    const has = (address: string): boolean =>
      addresses?.has(address) !== false || /^(?:127\.|[:.0]+1?$)/.test(address);
    const [tcp, udp] = [new FakeSockets(has), new FakeSockets(has)];
    super(
      kind,
      {
        limits: { ...DEFAULT_LIMITS, reservedDescriptors: 0 },
        clock,
        random: () => 0.5,
        descriptorLimit: descriptors,
      },
      () => ({ tcp, udp }),
    );
    Object.assign(this, { clock, tcp, udp });
    this.addresses = addresses ?? new Set();
    this.#has = has;
  }

  override async apply(changes: readonly EngineChange[]): Promise<void> {
    this.batches.push(changes);
    const { failAfter } = this;
    this.failAfter = undefined;
    const done = failAfter === undefined ? changes : changes.slice(0, failAfter);
    for (const change of done) if (change.kind === 'remove') this.#specs.delete(change.name);
    for (const change of done) {
      if (change.kind === 'set') this.#specs.set(change.spec.name, change.spec);
      if (change.kind !== 'endpoints') continue;
      const spec = this.#specs.get(change.name);
      if (spec === undefined) throw new Error(`endpoints for ${change.name}, which is not set`);
      this.#specs.set(change.name, { ...spec, endpoints: change.endpoints });
    }
    await super.apply(done);
    if (failAfter !== undefined) throw new Error('the engine broke down');
  }

  /** Tries the listeners that failed once more. */
  async retry(): Promise<void> {
    this.clock.advance(30_000);
    await super.apply([]);
  }

  /** What a connection, or a datagram, to a place meets; undefined when no one listens there. */
  lands(address: string, port: number, protocol: Protocol = 'TCP'): Landing | undefined {
    const wildcard = isIPv6(address) ? '::' : '0.0.0.0';
    const open = this.#open().filter(
      (each) => each.protocol === protocol && each.boundPort === port,
    );
    const found =
      open.find(({ listen }) => listen.address === address) ??
      open.find(({ listen }) => listen.address === wildcard && this.#has(address));
    const spec = found && this.#specs.get(found.name);
    if (found === undefined || spec === undefined) return undefined;
    const { traffic } = found.listen;
    const endpoints = spec.endpoints.filter((each) => each[traffic]).map(endpointText);
    return { servicePort: spec.name, traffic, endpoints };
  }

  /** What there is, as plain data in a fixed order. */
  state(): unknown {
    const sockets = this.#open().map(
      ({ name, protocol, listen }) => `${name} ${protocol} ${JSON.stringify(listen)}`,
    );
    const specs = [...this.#specs.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    return { specs, sockets: sockets.sort() };
  }

  async set(...specs: ServicePortSpec[]): Promise<void> {
    await this.apply(specs.map((spec) => ({ kind: 'set', spec })));
  }

  /**
   * A client of the last TCP listener that was opened, whose attempts fail with `code`, unless it is empty. `local`: the address that it has
   * connected to, at port 80. `header`: what it sends first.
   */
  connect(local: string, code = 'ECONNREFUSED', header: Uint8Array = new Uint8Array()) {
    const client = fakeClient(local, code, header);
    (this.tcp.owner as AcceptOwner).accepted(client);
    return client;
  }

  counters(name: string): ServicePortCounters | undefined {
    return this.snapshot(new Set([name]))[0]?.counters;
  }

  /** The states of a service port's listeners: a port, or a code and its cause. */
  states(name: string): string[] {
    const [found] = this.snapshot(new Set([name]));
    return (found?.listeners ?? []).map((each) =>
      each.state === 'listening' ? String(each.boundPort) : `${each.code} ${each.cause}`,
    );
  }

  #open() {
    return this.snapshot().flatMap(({ name, protocol, listeners }) =>
      listeners.flatMap((each) =>
        each.state === 'listening' ? [{ ...each, name, protocol }] : [],
      ),
    );
  }
}

/** A service port for tests of tables, as `listen('10.0.0.1:80', ...)`. */
export function listenSpec(
  name: string,
  places: readonly (string | ListenSpec)[],
  protocol: Protocol = 'TCP',
): ServicePortSpec {
  const listen = places.map((place) => {
    if (typeof place !== 'string') return place;
    const at = place.lastIndexOf(':');
    const port = Number(place.slice(at + 1));
    return { address: place.slice(0, at), port, traffic: 'internal' as const };
  });
  return { name, protocol, listen, endpoints: [], affinity: { kind: 'none' } };
}
