import type { Socket } from 'node:net';
import type { Test } from 'tap';
import type { AcceptorEngine } from '../../src/proxysocket/acceptor-engine.ts';
import type { Engine, ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import type { NodeEngineOptions } from '../../src/proxysocket/node/engine.ts';
import type {
  AffinitySpec,
  EndpointSpec,
  ListenSpec,
  Protocol,
  ServicePortSpec,
} from '../../src/proxysocket/spec.ts';
import { engineUnderTest } from './engine-under-test.ts';
import { FakeClock } from './fake-clock.ts';
import type { Teardown } from './sockets.ts';
import { tcpClient, tcpServer, type TcpServer } from './tcp-peers.ts';
import { UdpBackend, UdpClient } from './udp-peers.ts';
import { until } from './until.ts';

const LOOPBACK: ListenSpec = { address: '127.0.0.1', port: 0, traffic: 'internal' };

/** A service port of a test; what is not given is simple. */
export function tcpSpec(
  endpoints: readonly EndpointSpec[],
  options: TcpSpecOptions = {},
): ServicePortSpec {
  const { name = 'test/web:http', listen = [{}], affinity = { kind: 'none' }, ...rest } = options;
  return {
    protocol: 'TCP',
    ...rest,
    name,
    listen: listen.map((each) => Object.assign({ ...LOOPBACK }, each)),
    endpoints,
    affinity,
  };
}

export interface TcpSpecOptions extends Pick<
  ServicePortSpec,
  'proxyProtocol' | 'proxyProtocolFrom' | 'udpIdleTimeoutMs'
> {
  readonly protocol?: Protocol;
  readonly name?: string;
  readonly listen?: readonly Partial<ListenSpec>[];
  readonly affinity?: AffinitySpec;
}

const UDP = { name: 'test/dns', protocol: 'UDP' } as const;

/** The same of UDP. */
export function udpSpec(
  endpoints: readonly EndpointSpec[],
  options: TcpSpecOptions = {},
): ServicePortSpec {
  return tcpSpec(endpoints, { ...UDP, ...options });
}

/** The port of the first listener of a service port; 0 if it is not open. */
export function portOf(engine: Pick<Engine, 'snapshot'>, name = 'test/web:http'): number {
  const [listener] = engine.snapshot(new Set([name]))[0]?.listeners ?? [];
  return listener?.state === 'listening' ? listener.boundPort : 0;
}

/** An engine, destroyed at the end of the test. */
export class TcpRig {
  readonly engine: AcceptorEngine;
  /** The service port that is meant where none is named. */
  name = 'test/web:http';

  constructor(t: Teardown, options: NodeEngineOptions = {}) {
    this.engine = engineUnderTest(t, { random: almostOne, ...options });
  }

  /** Sets a service port; resolves with the port of its first listener. */
  async serve(endpoints: readonly EndpointSpec[], options: TcpSpecOptions = {}): Promise<number> {
    const spec = tcpSpec(endpoints, options);
    await this.engine.apply([{ kind: 'set', spec }]);
    return this.port(spec.name);
  }

  async remove(name = this.name): Promise<void> {
    await this.engine.apply([{ kind: 'remove', name }]);
  }

  async endpoints(endpoints: readonly EndpointSpec[], name = this.name): Promise<void> {
    await this.engine.apply([{ kind: 'endpoints', name, endpoints }]);
  }

  /** What the engine reports about a service port; throws when it knows none of that name. */
  snapshot(name = this.name): ServicePortSnapshot {
    const found = this.engine.snapshot(new Set([name]))[0];
    if (found === undefined) throw new Error(`${name} is not there`);
    return found;
  }

  get counters(): ServicePortSnapshot['counters'] {
    return this.snapshot().counters;
  }

  port(name = this.name, index = 0): number {
    const listener = this.snapshot(name).listeners[index];
    if (listener?.state !== 'listening') {
      throw new Error(`${name} does not listen: ${JSON.stringify(listener)}`);
    }
    return listener.boundPort;
  }
}

/** Of a server: sends back what comes. */
export const echo = (socket: Socket): unknown => socket.pipe(socket);

/** An engine with one service port, which has one server; that echoes unless another one is given. */
export async function tcpScene(
  t: Teardown,
  { server: given, ...options }: NodeEngineOptions & { readonly server?: TcpServer } = {},
  spec?: TcpSpecOptions,
) {
  const rig = new TcpRig(t, options);
  const server = given ?? (await tcpServer(t, echo));
  return { rig, server, port: await rig.serve([server.endpoint], spec) };
}

interface UdpSceneOptions extends NodeEngineOptions {
  /** Default: `backend`. */
  readonly endpoints?: readonly EndpointSpec[];
  /** How `backend` answers. Default: it echoes. */
  readonly answer?: (message: Buffer) => Buffer | undefined;
}

/** An engine whose clock stands still, with one UDP service port, and a client of that. */
export async function udpScene(
  t: Teardown,
  { endpoints, answer, ...options }: UdpSceneOptions = {},
  spec: TcpSpecOptions = {},
) {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock, ...options });
  const backend = await UdpBackend.start(t, answer);
  rig.name = spec.name ?? UDP.name;
  const port = await rig.serve(endpoints ?? [backend.spec], { ...UDP, ...spec });
  return { clock, rig, backend, port, client: await UdpClient.open(t) };
}

/** What many tests begin with: a client, `socket` of the one server that it is relayed to, and the rig in between. */
export async function relayed(
  t: Teardown,
  options: NodeEngineOptions = {},
  onSocket?: (socket: Socket) => unknown,
) {
  const { rig, server, port } = await tcpScene(t, {
    ...options,
    server: await tcpServer(t, onSocket),
  });
  const client = await tcpClient(t, port);
  return { rig, server, port, client, socket: await server.next() };
}

/** Engines that hold TCP clients of service ports without endpoints. */

export const HOUR = 3_600_000;

/** An engine that holds clients for an hour, by default, and a service port without endpoints. */
export async function holding(t: Test, options: NodeEngineOptions = {}, spec?: TcpSpecOptions) {
  const limits = { holdTimeoutMs: HOUR, ...options.limits };
  const rig = new TcpRig(t, { ...options, limits });
  return { rig, port: await rig.serve([], spec) };
}

/** Waits until so many clients are held. */
export async function held(rig: TcpRig, count: number): Promise<void> {
  await until(() => rig.counters.held === count);
}

/**
 * So near to 1 that a shuffle leaves the endpoints in the order given. But not always the same, or
 * every test would choose the same port, where the kernel remembers the connections of the last one.
 */
export function almostOne(): number {
  return 0.98 + 0.0199 * Math.random();
}
