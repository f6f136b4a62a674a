import { ProcessDescriptors } from '../../src/proxysocket/core/descriptors.ts';
import { SharedServicePorts } from '../../src/proxysocket/core/shared-service-ports.ts';
import { LoopGuard } from '../../src/proxysocket/core/loop-guard.ts';
import { AcceptorEngine } from '../../src/proxysocket/core/engine.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import type { Acceptor, Listener, ServicePort } from '../../src/proxysocket/core/service-port.ts';
import type { ListenSpec, Protocol, ServicePortSpec, Traffic } from '../../src/proxysocket/spec.ts';
import { RoundRobinBalancer } from '../../src/roundrobin/balancer.ts';
import { FakeClock } from './fake-clock.ts';

interface OpenSocket {
  readonly address: string;
  readonly port: number;
  owner: ServicePort;
  traffic: Traffic;
  sourceRanges: readonly string[] | undefined;
}

/**
 * Sockets of one protocol on a make-believe host, where an address and its wildcard are in each
 * other's way as on Linux. It reports where a connection would land, and what was opened and closed.
 */
export class FakeAcceptor implements Acceptor {
  readonly protocol: Protocol;
  /** `+place` and `-place`, in order. */
  readonly log: string[] = [];
  /** System errors, by `address:port`. */
  readonly errors = new Map<string, string>();
  /** Endpoints and service ports that were reported gone. */
  readonly gone: string[] = [];
  readonly #open = new Set<OpenSocket>();
  #nextPort = 40_000;
  /** Tries to listen, successful or not. */
  attempts = 0;
  destroyed = false;

  constructor(protocol: Protocol) {
    this.protocol = protocol;
  }

  get size(): number {
    return this.#open.size;
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    this.attempts += 1;
    const port = spec.port === 0 ? (this.#nextPort += 1) : spec.port;
    const place = `${spec.address}:${port}`;
    const error =
      this.errors.get(place) ?? (this.#overlaps(spec.address, port) ? 'EADDRINUSE' : '');
    if (error !== '') throw Object.assign(new Error(`listen ${error}`), { code: error });
    const { address, traffic, sourceRanges } = spec;
    const socket: OpenSocket = { address, port, owner, traffic, sourceRanges };
    this.#open.add(socket);
    this.log.push(`+${place}`);
    return this.#listener(socket);
  }

  endpointGone(endpoint: { text: string }, owner: ServicePort): void {
    this.gone.push(`${owner.name} ${endpoint.text}`);
  }

  servicePortGone(owner: ServicePort): void {
    this.gone.push(owner.name);
  }

  async drained(): Promise<void> {}

  async destroy(): Promise<void> {
    this.destroyed = true;
  }

  /** Who gets a connection to a place, as `name traffic`; undefined when it is refused. */
  lands(address: string, port: number): string | undefined {
    for (const socket of this.#open) {
      if (socket.port !== port) continue;
      if (socket.address !== address && !isWildcard(socket.address)) continue;
      return `${socket.owner.name} ${socket.traffic}${socket.sourceRanges?.join(',') ?? ''}`;
    }
    return undefined;
  }

  #listener(socket: OpenSocket): Listener {
    let open = true;
    return {
      protocol: this.protocol,
      address: socket.address,
      boundPort: socket.port,
      family: socket.address.includes(':') ? 6 : 4,
      assign: (owner, { traffic, sourceRanges }) => {
        if (!open) throw new Error('a closed listener was handed over');
        Object.assign(socket, { owner, traffic, sourceRanges });
      },
      close: async () => {
        if (!open) return;
        open = false;
        // The port is free only a moment later.
        await new Promise(setImmediate);
        this.#open.delete(socket);
        this.log.push(`-${socket.address}:${socket.port}`);
      },
    };
  }

  #overlaps(address: string, port: number): boolean {
    for (const other of this.#open) {
      if (other.port !== port || other.address.includes(':') !== address.includes(':')) continue;
      if (other.address === address || isWildcard(other.address) || isWildcard(address))
        return true;
    }
    return false;
  }
}

function isWildcard(address: string): boolean {
  return address === '0.0.0.0' || address === '::';
}

/** An engine on fake acceptors and a fake clock. */
export class FakeHost {
  readonly clock = new FakeClock();
  readonly tcp = new FakeAcceptor('TCP');
  readonly udp = new FakeAcceptor('UDP');
  readonly engine: AcceptorEngine;

  constructor({ descriptors = 100_000 } = {}) {
    this.engine = new AcceptorEngine({
      kind: 'node',
      acceptors: { TCP: this.tcp, UDP: this.udp },
      descriptors: new ProcessDescriptors({ limit: descriptors, reserve: 0 }),
      loops: new LoopGuard(this.clock),
      shared: new SharedServicePorts(),
      newBalancer: (affinity) =>
        new RoundRobinBalancer({
          clock: this.clock,
          random: () => 0.999_999,
          affinity,
          maxAffinityClients: 100,
        }),
      limits: { ...DEFAULT_LIMITS },
      clock: this.clock,
      // In the middle of its range, so that times have no jitter.
      random: () => 0.5,
    });
  }

  async set(...specs: ServicePortSpec[]): Promise<void> {
    await this.engine.apply(specs.map((spec) => ({ kind: 'set', spec })));
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
