import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { newCounters } from '../../src/proxysocket/counters.ts';
import { ProcessDescriptors } from '../../src/proxysocket/core/descriptors.ts';
import { DEFAULT_LIMITS, type EngineLimits } from '../../src/proxysocket/limits.ts';
import type { OwnedListener } from '../../src/proxysocket/core/listener.ts';
import type { ServicePort } from '../../src/proxysocket/core/service-port.ts';
import type { UdpAcceptor } from '../../src/proxysocket/udp/acceptor.ts';
import type { AffinitySpec, EndpointSpec, ListenSpec } from '../../src/proxysocket/spec.ts';
import type { NodeUdpOptions } from '../../src/proxysocket/node/udp/transport.ts';
import type { BalancerEndpoint } from '../../src/roundrobin/endpoint.ts';
import type { Clock } from '../../src/util/clock.ts';
import { NONE, Subject } from './balancer.ts';
import { udpAcceptorUnderTest } from './engine-under-test.ts';
import { FakeClock } from './fake-clock.ts';
import type { Teardown } from './sockets.ts';
import { until } from './until.ts';

async function bind(t: Teardown, address: string, port: number): Promise<Socket> {
  const socket = createSocket({
    type: address.includes(':') ? 'udp6' : 'udp4',
    recvBufferSize: 4 * 1024 * 1024,
    lookup: (host, _options, callback) => callback(null, host, 0),
  });
  // With such a lookup the event comes before `bind` returns.
  const listening = once(socket, 'listening');
  socket.bind({ address, port, exclusive: true });
  await listening;
  let open = true;
  socket.once('close', () => (open = false));
  t.teardown(() => {
    if (open) socket.close();
  });
  return socket;
}

/** A UDP server that remembers what it got, and answers each datagram with what `answer` returns. */
export class UdpBackend {
  readonly received: { message: Buffer; remote: RemoteInfo }[] = [];
  readonly #socket: Socket;

  private constructor(socket: Socket, answer: (message: Buffer) => Buffer | undefined) {
    this.#socket = socket;
    socket.on('message', (message, remote) => {
      this.received.push({ message, remote });
      const reply = answer(message);
      if (reply !== undefined) this.send(reply, remote);
    });
  }

  static async start(
    t: Teardown,
    answer: (message: Buffer) => Buffer | undefined = (message) => message,
    { address = '127.0.0.1', port = 0 } = {},
  ): Promise<UdpBackend> {
    return new UdpBackend(await bind(t, address, port), answer);
  }

  /** Answers every datagram with `name`, so that a client sees who it was. */
  static async named(t: Teardown, name: string, address?: string): Promise<UdpBackend> {
    return UdpBackend.start(t, () => Buffer.from(name), address === undefined ? {} : { address });
  }

  get spec(): EndpointSpec {
    const { address, port } = this.#socket.address();
    return { address, port, internal: true, external: true };
  }

  /** The sender of the first datagram: where an answer has to go. */
  get firstPeer(): RemoteInfo {
    const first = this.received[0];
    if (first === undefined) throw new Error('nothing received yet');
    return first.remote;
  }

  /** How many sockets of the proxy it has heard from. */
  get peers(): number {
    return new Set(this.received.map(({ remote }) => remote.port)).size;
  }

  send(message: Buffer, to: { port: number; address: string }): void {
    this.#socket.send(message, to.port, to.address);
  }

  async close(): Promise<void> {
    this.#socket.close();
    await once(this.#socket, 'close');
  }
}

/** A client socket that keeps what it receives, with the address it came from. */
export class UdpClient {
  readonly replies: { message: Buffer; from: string }[] = [];
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('message', (message, { address, port }) => {
      this.replies.push({ message, from: `${address}:${port}` });
    });
    socket.on('error', () => undefined);
  }

  static async open(t: Teardown, address = '127.0.0.1', port = 0): Promise<UdpClient> {
    return new UdpClient(await bind(t, address, port));
  }

  get port(): number {
    return this.#socket.address().port;
  }

  get lastReply(): string | undefined {
    return this.replies.at(-1)?.message.toString();
  }

  send(message: Buffer | string, port: number, address = '127.0.0.1'): void {
    this.#socket.send(message, port, address);
  }

  /** Sends and waits for one more reply; resolves with its text. Loses no patience, so never use it where none may come. */
  async ask(message: Buffer | string, port: number, address = '127.0.0.1'): Promise<string> {
    const before = this.replies.length;
    this.send(message, port, address);
    await until(() => this.replies.length > before);
    return String(this.replies[before]?.message);
  }

  async close(): Promise<void> {
    this.#socket.close();
    await once(this.#socket, 'close');
  }
}

interface UdpRigOptions extends NodeUdpOptions {
  readonly clock?: Clock;
  readonly limits?: Partial<EngineLimits>;
  readonly descriptors?: number;
}

interface TestServiceOptions {
  readonly affinity?: AffinitySpec;
  readonly idleMs?: number;
  readonly name?: string;
}

/** An acceptor with everything around it. Destroyed at the end of the test. */
export class UdpRig {
  readonly clock: Clock;
  readonly limits: EngineLimits;
  readonly descriptors: ProcessDescriptors;
  readonly acceptor: UdpAcceptor;
  readonly #t: Teardown;
  #services = 0;

  constructor(t: Teardown, options: UdpRigOptions = {}) {
    const { clock = new FakeClock(), descriptors: limit = 100_000 } = options;
    this.clock = clock;
    this.limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.descriptors = new ProcessDescriptors({ limit, reserve: 0 });
    this.acceptor = udpAcceptorUnderTest(t, this, options);
    this.#t = t;
    t.teardown(() => this.acceptor.destroy());
  }

  service(
    endpoints: readonly EndpointSpec[],
    {
      affinity = NONE,
      idleMs,
      name = `test/service${(this.#services += 1)}:dns`,
    }: TestServiceOptions = {},
  ): ServicePort {
    const { balancer } = new Subject({ clock: this.clock, affinity }).with(...endpoints);
    const counters = newCounters();
    return { name, protocol: 'UDP', balancer, counters, udpIdleTimeoutMs: idleMs };
  }

  async listen(owner: ServicePort, spec: Partial<ListenSpec> = {}): Promise<OwnedListener> {
    const whole = { address: '127.0.0.1', port: 0, traffic: 'internal', ...spec } as const;
    const listener = this.acceptor.newListener(whole, owner);
    await listener.open(whole);
    this.#t.teardown(() => listener.close());
    return listener;
  }

  /** Changes the endpoints of a service as an engine does: ends what belongs to those that are gone. */
  update(owner: ServicePort, endpoints: readonly EndpointSpec[]): readonly BalancerEndpoint[] {
    const gone = owner.balancer.update(endpoints);
    for (const endpoint of gone) this.acceptor.endpointGone(endpoint);
    return gone;
  }
}

interface UdpSceneOptions extends UdpRigOptions, TestServiceOptions {
  /** Default: `backend`. */
  readonly endpoints?: readonly EndpointSpec[];
  /** How `backend` answers. Default: it echoes. */
  readonly answer?: (message: Buffer) => Buffer | undefined;
  readonly listen?: Partial<ListenSpec>;
}

/** Of a backend: answers nothing by itself. */
export const silent = (): undefined => undefined;

/** What most tests begin with: a client of a service port, its listener, and a backend. `clock` is used unless another is given. */
export async function udpScene(
  t: Teardown,
  { endpoints, answer, listen, ...options }: UdpSceneOptions = {},
) {
  const clock = new FakeClock();
  const rig = new UdpRig(t, { clock, ...options });
  const backend = await UdpBackend.start(t, answer);
  const owner = rig.service(endpoints ?? [backend.spec], options);
  const listener = await rig.listen(owner, listen);
  const client = await UdpClient.open(t);
  return { clock, rig, backend, owner, listener, port: listener.boundPort, client };
}
