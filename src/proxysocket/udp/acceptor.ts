import type { BalancerEndpoint, Pick } from '../../roundrobin/endpoint.ts';
import { rejectReason } from '../counters.ts';
import { udpSessionEnded, udpSessionStarted, type UdpSessionStarted } from '../events.ts';
import {
  attemptFailed,
  publishPicked,
  type EngineContext,
  type ServicePort,
} from '../core/service-port.ts';
import { connectErrorCause, lossCause } from '../core/socket-errors.ts';
import { Gate } from '../core/descriptors.ts';
import { LimitSignal } from '../core/limit-signal.ts';
import type { ListenSpec } from '../spec.ts';
import { OwnedListener } from '../core/listener.ts';
import { EndpointIndex } from '../core/endpoint-index.ts';
import {
  PairMap,
  type ClientAddress,
  type SessionClient,
  type EndReason,
  type ListenSocket,
  type ListenSocketOwner,
  type SessionHost,
  type UdpListening,
  type UdpSession,
  type UdpTransport,
} from './transport.ts';
import { previousFlows, refusals } from './known-clients.ts';
import { DeadlineQueue, IdleQueues } from '../core/timers.ts';

/** Sessions that a datagram may pass through when endpoints are services of this process. */
export const MAX_HOPS = 8;

/**
 * How long a session with a failing endpoint has to last without an ICMP error to show that it is reachable: many never
 * answer. Longer than the kernel looks for a neighbour. Milliseconds.
 */
const PROOF_MS = 10_000;

/**
 * How long a session may wait for its first answer before it can be evicted. Otherwise, with more active clients than
 * sessions, each one would be evicted before its answer. Milliseconds.
 */
const ANSWER_MS = 250;

/** Without a full send queue. Milliseconds. */
const QUIET_MS = 1000;

/**
 * The UDP half of an engine, on the sockets of a transport.
 *
 * A session is one client port at one listening socket, with its own socket that is connected to one endpoint. It
 * ends when it is idle, when its endpoint, service port or listener is removed, when an ICMP error reports a closed
 * port, or when a newer one needs its room. The client's next datagram then begins another one.
 */
export class UdpAcceptor implements SessionHost {
  readonly refuse: ReturnType<typeof refusals>;
  readonly #context: EngineContext;
  readonly transport: UdpTransport;
  readonly #idle: IdleQueues<UdpSession>;
  readonly index = new EndpointIndex<UdpSession>();
  readonly #byBackendAddress = new PairMap<string, number, UdpSession>();
  readonly gate: Gate;
  readonly #queues: LimitSignal;
  /** After this, the limit no longer counts as reached. */
  readonly #quiet: DeadlineQueue<LimitSignal>;
  readonly #previousEndpoint: ReturnType<typeof previousFlows>;
  /** One session for each failing endpoint. */
  readonly #proofs: DeadlineQueue<UdpSession>;
  readonly #proving = new Set<BalancerEndpoint>();

  constructor(transport: UdpTransport, context: EngineContext) {
    const { limits, clock, descriptors } = context;
    this.#context = context;
    this.transport = transport;
    // No more than half of the descriptors: any client can send datagrams from any number of ports, and they must not
    // keep TCP clients out.
    const most = () => Math.min(limits.maxUdpSessions, Math.ceil(descriptors.capacity / 2));
    this.gate = new Gate('UDP', 'max-udp-sessions', most, descriptors);
    this.#queues = new LimitSignal('udp-send-queue', () => limits.udpSendQueueBytes);
    this.#quiet = new DeadlineQueue(clock, QUIET_MS, (signal) => signal.left());
    this.refuse = refusals(clock, limits.udpIdleTimeoutMs);
    this.#previousEndpoint = previousFlows(clock, limits.udpIdleTimeoutMs);
    this.#proofs = new DeadlineQueue(clock, PROOF_MS, (session) => this.#proved(session));
    this.#idle = new IdleQueues(
      clock,
      (session) => session.owner.udpIdleTimeoutMs ?? limits.udpIdleTimeoutMs,
      (session) => {
        session.owner.counters.idleTimeouts += 1;
        this.#finish(session, 'idle');
      },
    );
  }

  newListener(spec: ListenSpec, owner: ServicePort): OwnedListener {
    return new UdpListener(this, spec, owner);
  }

  /**
   * Begins a session for a new client port, in place of the least recently used one if there is no room; undefined,
   * counted and reported, without an endpoint or room. A client may be another session: in a loop of services, each
   * datagram would start sessions without end.
   */
  begin(
    listenSocket: ListenSocket,
    owner: ServicePort,
    client: SessionClient,
  ): UdpSession | undefined {
    const from = this.#byBackendAddress.get(client.address, client.port);
    const hops = from === undefined ? 0 : from.hops + 1;
    if (hops >= MAX_HOPS) {
      this.refuse(owner, client, 'limit');
      return undefined;
    }
    const traffic = listenSocket.trafficOf(client);
    const { family } = listenSocket;
    const previous = this.#previousEndpoint(owner.name, client);
    const request = { client: client.address, traffic, family, tried: [], previous };
    const pick = owner.balancer.pick(request);
    if (pick === undefined) {
      this.refuse(owner, client, rejectReason(owner, traffic, 'no-endpoint'));
      return undefined;
    }
    while (!this.gate.enter()) {
      if (this.#evict()) continue;
      this.refuse(owner, client, 'limit');
      return undefined;
    }
    const session = listenSocket.newSession({ owner, client, endpoint: pick.endpoint });
    session.hops = hops;
    session.beganAt = this.#context.clock.now();
    owner.counters.connections += 1;
    owner.counters.active += 1;
    this.#idle.touch(session);
    this.#open(session, pick);
    return session;
  }

  endpointGone(endpoint: BalancerEndpoint): void {
    for (const session of this.index.of(endpoint)) this.#finish(session, 'endpoint-gone');
  }

  /** `continues`: until its sessions are idle. */
  servicePortGone(owner: ServicePort, continues = false): void {
    if (continues) return;
    for (const endpoint of owner.balancer.endpoints()) this.endAll(this.index.of(endpoint));
  }

  destroy(): void {
    const sessions = [...this.index];
    for (const session of sessions) this.#finish(session, 'destroyed');
  }

  endAll(sessions: Iterable<UdpSession>): void {
    for (const session of sessions) this.#finish(session, 'service-gone');
  }

  queueFull({ owner }: UdpSession): void {
    owner.counters.datagramsDropped += 1;
    this.#queues.refused();
    this.#quiet.first?.remove();
    this.#quiet.add(this.#queues);
  }

  touch(session: UdpSession): void {
    this.#idle.touch(session);
  }

  opened(session: UdpSession, local: ClientAddress): void {
    session.local = local;
    session.endpoint.record.connections += 1;
    this.#prove(session);
    this.#byBackendAddress.set(local.address, local.port, session);
    if (udpSessionStarted.hasSubscribers) udpSessionStarted.publish(describe(session));
  }

  openFailed(session: UdpSession, error: Error): void {
    const cause = connectErrorCause(error, 'UDP');
    attemptFailed(session.owner, session.endpoint, session.tried.length + 1, cause, error);
    if (cause === 'limit') {
      // Once: if the shortage is not of our making, ending all sessions would not help either.
      if (!session.madeRoom && this.#evict(session)) {
        session.madeRoom = true;
        session.open();
      } else this.#abandon(session, 'limit');
      return;
    }
    const { owner, client, listenSocket } = session;
    const tried = [...session.tried, session.endpoint];
    const [traffic, { family }] = [listenSocket.trafficOf(client), listenSocket];
    const isLast = tried.length >= this.#context.limits.connectTimeoutsMs.length;
    const request = { client: client.address, traffic, family, tried };
    const pick = isLast ? undefined : owner.balancer.pick(request);
    if (pick === undefined || tried.includes(pick.endpoint)) {
      this.#abandon(session, 'connect-failed');
      return;
    }
    owner.counters.retries += 1;
    session.indexed?.remove();
    session.tried = tried;
    session.endpoint = pick.endpoint;
    this.#open(session, pick);
  }

  failed(session: UdpSession, error: Error): void {
    const cause = lossCause(error);
    if (cause === undefined) return;
    attemptFailed(session.owner, session.endpoint, session.tried.length + 1, cause, error);
    this.#finish(session, 'icmp-error');
  }

  #open(session: UdpSession, pick: Pick): void {
    const { owner, endpoint } = session;
    session.indexed = this.index.add(endpoint, session);
    publishPicked(owner, pick, session.tried.length + 1, session);
    session.open();
  }

  /** Ends the least recently used session; false when that is `keep`, or waits for its first answer. */
  #evict(keep?: UdpSession): boolean {
    const oldest = this.#idle.oldest();
    if (oldest === undefined || oldest === keep || this.#awaitsAnswer(oldest)) return false;
    oldest.owner.counters.sessionsEvicted += 1;
    this.#finish(oldest, 'evicted');
    return true;
  }

  #awaitsAnswer({ datagramsOut, beganAt }: UdpSession): boolean {
    return datagramsOut === 0 && this.#context.clock.now() - beganAt < ANSWER_MS;
  }

  #prove(session: UdpSession): void {
    const { endpoint } = session;
    if (endpoint.recorded?.failingSince === undefined || this.#proving.has(endpoint)) return;
    this.#proving.add(endpoint);
    this.#proofs.add(session);
  }

  #proved({ endpoint, owner, state, datagramsIn }: UdpSession): void {
    this.#proving.delete(endpoint);
    if (state !== 'ended' && datagramsIn > 0) owner.balancer.connected(endpoint);
  }

  #abandon(session: UdpSession, reason: 'limit' | 'connect-failed'): void {
    const { owner, client } = session;
    this.#finish(session, 'icmp-error');
    this.refuse(owner, client, reason, 0);
  }

  #finish(session: UdpSession, reason: EndReason): void {
    if (session.state === 'ended') return;
    const { counters } = session.owner;
    const wasOpen = session.state === 'open';
    counters.datagramsDropped += session.end();
    counters.active -= 1;
    if (wasOpen) {
      const { record } = session.endpoint;
      record.bytesIn += session.bytesIn;
      record.bytesOut += session.bytesOut;
    }
    this.#idle.remove(session);
    session.indexed?.remove();
    const { local } = session;
    if (local !== undefined) this.#byBackendAddress.delete(local.address, local.port);
    session.listenSocket.forget(session);
    if (wasOpen && udpSessionEnded.hasSubscribers) {
      const { datagramsIn, datagramsOut } = session;
      udpSessionEnded.publish({ ...describe(session), datagramsIn, datagramsOut, reason });
    }
    this.gate.leave(reason === 'evicted');
  }
}

class UdpListener extends OwnedListener<UdpListening> implements ListenSocketOwner {
  readonly host: UdpAcceptor;

  constructor(host: UdpAcceptor, spec: ListenSpec, owner: ServicePort) {
    super(spec, owner, host.transport);
    this.host = host;
  }

  /** New clients are served by the new owner at once. Sessions with unsuitable endpoints end. */
  override assign(owner: ServicePort, spec: ListenSpec): void {
    const sameService = this.owner === owner && this.listen.traffic === spec.traffic;
    super.assign(owner, spec);
    const fits = ({ client }: UdpSession) => sameService && this.admits({ client: client.address });
    for (const socket of this.sockets)
      this.host.endAll(socket.sessions().filter((session) => !fits(session)));
  }

  begin(listenSocket: ListenSocket, client: SessionClient): UdpSession | undefined {
    if (!this.admits({ client: client.address })) {
      this.host.refuse(this.owner, client, 'source');
      return undefined;
    }
    return this.host.begin(listenSocket, this.owner, client);
  }

  dropped(): void {
    this.owner.counters.datagramsDropped += 1;
  }

  leave(served: ReadonlySet<number>): void {
    for (const socket of this.sockets) socket.leave(served);
  }
}

function describe({ owner, remoteAddress, endpoint }: UdpSession): UdpSessionStarted {
  return { servicePort: owner.name, remoteAddress, endpoint: endpoint.text };
}
