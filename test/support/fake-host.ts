import { closeSync } from 'node:fs';
import { AcceptorEngine } from '../../src/proxysocket/acceptor-engine.ts';
import { takeInherited } from '../../src/proxysocket/core/inherited.ts';
import type { ServicePortCounters } from '../../src/proxysocket/counters.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import type { ListenSpec, Protocol, ServicePortSpec } from '../../src/proxysocket/spec.ts';
import type {
  AcceptOwner,
  DialOwner,
  HeadOwner,
  KnownAddress,
  TcpClient,
  TcpDial,
  TcpRelay,
} from '../../src/proxysocket/tcp/transport.ts';
import type { BalancerEndpoint } from '../../src/roundrobin/endpoint.ts';
import { overlap } from './fake-engine.ts';
import { FakeClock } from './fake-clock.ts';

/**
 * Listening sockets of one protocol on a make-believe host, where an address and its wildcard are in each other's way
 * as on Linux. It reports what was opened and closed.
 */
class FakeSockets {
  /** `+place` and `-place`, in order. */
  readonly log: string[] = [];
  /** System errors, by `address:port`. */
  readonly errors = new Map<string, string>();
  /** Tries to listen, successful or not. */
  attempts = 0;
  destroyed = false;
  /** Who gets the clients of the last socket that was opened. */
  owner: unknown;
  readonly #open = new Set<{ readonly address: string; readonly port: number }>();
  #nextPort = 40_000;

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
    const error = this.errors.get(place) ?? (isTaken ? 'EADDRINUSE' : '');
    if (error !== '') throw Object.assign(new Error(`listen ${error}`), { code: error });
    const socket = { address, port };
    this.#open.add(socket);
    this.owner = owner;
    this.log.push(`+${place}`);
    return {
      boundPort: port,
      listenSockets: () => [],
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

  readonly afterSockets = (callback: () => void): void => callback();

  async destroy(): Promise<void> {
    this.destroyed = true;
  }
}

/** An attempt to connect, or the relay that it became, which a test brings on. */
export class FakeDial implements TcpDial, TcpRelay {
  readonly bytesIn = 0;
  readonly bytesOut = 0;
  readonly endpoint: BalancerEndpoint;
  readonly owner: DialOwner;
  /** What the test finds out: `abandon`, or `reset` with the reason. */
  readonly log: string[] = [];
  /** What the relay reports as `unsent`. */
  queued = 0;

  constructor(endpoint: BalancerEndpoint, owner: DialOwner) {
    this.endpoint = endpoint;
    this.owner = owner;
  }

  localAddress(): KnownAddress {
    return { address: '192.0.2.9', port: 2 };
  }

  abandon(): void {
    this.log.push('abandon');
  }

  join(): TcpRelay {
    return this;
  }

  unsent(): number {
    return this.queued;
  }

  start(): void {}

  keepAlive(): void {}

  /** It does not end before the test says so. */
  reset(reason: string): void {
    this.log.push(`reset ${reason}`);
  }
}

/** A client whose connection attempts fail at once, with a code, or else when the test says so. */
class FakeClient implements TcpClient {
  /** The address that each endpoint was to see. */
  readonly sources: (string | undefined)[] = [];
  readonly dials: FakeDial[] = [];
  /** How often its address was read. */
  asked = 0;
  resets = 0;
  readonly #local: string;
  readonly #code: string;
  readonly #header: Uint8Array;

  constructor(local: string, code: string, header: Uint8Array) {
    this.#local = local;
    this.#code = code;
    this.#header = header;
  }

  remoteAddress() {
    this.asked += 1;
    return { address: '192.0.2.1', port: 1 };
  }

  localAddress() {
    return { address: this.#local, port: 80 };
  }

  reset(): void {
    this.resets += 1;
  }

  hold(): void {}

  release(): void {}

  readHead(owner: HeadOwner): void {
    owner.head(this.#header);
    owner.headTaken();
  }

  dial(endpoint: BalancerEndpoint, owner: DialOwner, source?: string): FakeDial | Error {
    this.sources.push(source);
    if (this.#code === '') {
      const dial = new FakeDial(endpoint, owner);
      this.dials.push(dial);
      return dial;
    }
    return Object.assign(new Error(this.#code), { code: this.#code });
  }
}

/** An engine on fake sockets and a fake clock. */
export class FakeHost {
  readonly clock = new FakeClock();
  readonly tcp = new FakeSockets();
  readonly udp = new FakeSockets();
  readonly engine: AcceptorEngine;

  constructor(options: { descriptors?: number; kind?: AcceptorEngine['kind'] } = {}) {
    const { descriptors = 100_000, kind = 'node' } = options;
    const { clock, tcp, udp } = this;
    this.engine = new AcceptorEngine(
      kind,
      {
        limits: { ...DEFAULT_LIMITS, reservedDescriptors: 0 },
        clock,
        random: () => 0.5,
        descriptorLimit: descriptors,
      },
      () => ({ tcp, udp }),
    );
  }

  async set(...specs: ServicePortSpec[]): Promise<void> {
    await this.engine.apply(specs.map((spec) => ({ kind: 'set', spec })));
  }

  /**
   * A client of the last TCP listener that was opened, whose attempts fail with `code`, unless it is empty. `local`: the address that it has
   * connected to, at port 80. `header`: what it sends first.
   */
  connect(local: string, code = 'ECONNREFUSED', header: Uint8Array = new Uint8Array()): FakeClient {
    const client = new FakeClient(local, code, header);
    (this.tcp.owner as AcceptOwner).accepted(client);
    return client;
  }

  counters(name: string): ServicePortCounters | undefined {
    return this.engine.snapshot(new Set([name]))[0]?.counters;
  }

  /** The states of a service port's listeners: a port, or a code and its cause. */
  states(name: string): string[] {
    const [found] = this.engine.snapshot(new Set([name]));
    return (found?.listeners ?? []).map((each) =>
      each.state === 'listening' ? String(each.boundPort) : `${each.code} ${each.cause}`,
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
