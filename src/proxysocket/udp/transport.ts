import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import type { Family } from '../../util/family.ts';
import { formatHostPort } from '../../util/host-port.ts';
import type { IndexEntry } from '../core/endpoint-index.ts';
import type { Listening, ClientIp } from '../core/listener.ts';
import { type ServicePort } from '../core/service-port.ts';
import { selfConnectError } from '../core/socket-errors.ts';
import type { Deadline, Idle } from '../core/timers.ts';
import type { UdpSessionEnded } from '../events.ts';
import type { ConnectionSnapshot, Inspectable } from '../inspect.ts';
import type { ListenSpec, Traffic } from '../spec.ts';

/**
 * The operating system's part of UDP: sockets that listen, and sessions that carry datagrams between a client of
 * such a socket and an endpoint. This folder decides which client gets a session, and when it ends.
 */
export interface UdpTransport {
  listen(spec: ListenSpec, owner: ListenSocketOwner): Promise<UdpListening>;
}

export interface UdpListening extends Listening {
  sessions(): UdpSession[];
  /** See `ListenSocket.leave`. */
  leave(served: ReadonlySet<number>): void;
}

export interface ListenSocketOwner {
  readonly host: SessionHost;
  trafficOf(from: ClientIp): Traffic;
  /** Begins a session of this listening socket; undefined, counted and reported, when the client is refused. */
  begin(listenSocket: ListenSocket, client: SessionClient): UdpSession | undefined;
  /** A datagram could not be received or passed on. */
  dropped(): void;
}

export type EndReason = UdpSessionEnded['reason'];

const NONE_TRIED: readonly BalancerEndpoint[] = [];

export interface SessionStart {
  readonly listenSocket: ListenSocket;
  readonly owner: ServicePort;
  readonly client: SessionClient;
  readonly endpoint: BalancerEndpoint;
}

/**
 * One client port of one listening socket, and a socket that is connected to its endpoint. The host writes the fields
 * that are not readonly; a transport opens the socket and carries datagrams.
 */
export abstract class UdpSession implements Idle<UdpSession>, Inspectable {
  readonly listenSocket: ListenSocket;
  readonly owner: ServicePort;
  readonly client: SessionClient;
  /** Sessions of this process that its client's datagrams have passed before. */
  hops = 0;
  /** On the engine's clock. Milliseconds. */
  beganAt = 0;
  /** Where it sends from: the client that its endpoint sees. Set once it is open. */
  local: ClientAddress | undefined = undefined;
  indexed: IndexEntry | undefined = undefined;
  tried = NONE_TRIED;
  /** Whether another session was evicted because this one got no socket. */
  madeRoom = false;
  endpoint: BalancerEndpoint;
  datagramsIn = 0;
  datagramsOut = 0;
  bytesIn = 0;
  bytesOut = 0;
  idle: Deadline<UdpSession> | undefined = undefined;
  state: 'opening' | 'open' | 'ended' = 'opening';
  protected readonly host: SessionHost;

  constructor({ listenSocket, owner, client, endpoint }: SessionStart) {
    this.listenSocket = listenSocket;
    this.host = listenSocket.owner.host;
    this.owner = owner;
    this.client = client;
    this.endpoint = endpoint;
  }

  get remoteAddress(): string {
    const { address, port } = this.client;
    return formatHostPort({ host: address, port });
  }

  inspect(now: number): ConnectionSnapshot {
    return {
      servicePort: this.owner.name,
      protocol: 'UDP',
      client: this.remoteAddress,
      endpoint: this.endpoint.text,
      state: this.state === 'open' ? 'open' : 'connecting',
      ageMs: now - (this.idle?.since ?? now),
      in: this.datagramsIn,
      out: this.datagramsOut,
    };
  }

  /** Opens the socket to `endpoint`, in place of one that could not be opened. */
  abstract open(): void;

  /** Frees its descriptor at once. Returns how many datagrams were still waiting. */
  abstract end(): number;

  protected countIn(datagrams: number, bytes: number): void {
    const { counters } = this.owner;
    counters.datagramsIn += datagrams;
    counters.bytesIn += bytes;
    this.datagramsIn += datagrams;
    this.bytesIn += bytes;
  }

  protected countOut(datagrams: number, bytes: number): void {
    const { counters } = this.owner;
    counters.datagramsOut += datagrams;
    counters.bytesOut += bytes;
    this.datagramsOut += datagrams;
    this.bytesOut += bytes;
  }

  protected answered(): void {
    this.host.touch(this);
    if (this.datagramsOut === 0) this.owner.balancer.connected(this.endpoint);
  }

  protected failedWith(error: Error): void {
    this.owner.counters.datagramsDropped += 1;
    this.host.failed(this, error);
  }

  /** The socket is connected. Undefined: it is open now; else why not: it is connected to itself. */
  protected connected(local: ClientAddress): Error | undefined {
    const itself = selfConnectError(local, this.endpoint);
    if (itself !== undefined) return itself;
    this.state = 'open';
    this.host.opened(this, local);
    return undefined;
  }
}

export interface SessionHost {
  endAll(sessions: Iterable<UdpSession>): void;
  /** A datagram of the session was dropped because too much waits for its socket. */
  queueFull(session: UdpSession): void;
  touch(session: UdpSession): void;
  /** The socket is connected; `local` is its own address. */
  opened(session: UdpSession, local: ClientAddress): void;
  /** The socket could not be opened. The host calls `open` again, or ends the session. */
  openFailed(session: UdpSession, error: Error): void;
  /** The connected socket reported that a datagram is lost; the host ends the session if it has to. */
  failed(session: UdpSession, error: Error): void;
}

/** A listening socket and its clients' sessions. A transport knows how to make those, to read and to close. */
export abstract class ListenSocket<S extends UdpSession = UdpSession> implements UdpListening {
  abstract readonly boundPort: number;
  readonly family: Family;
  readonly owner: ListenSocketOwner;
  /** By the keys of their clients. */
  protected readonly known = new PairMap<unknown, unknown, S>();
  #state: 'open' | 'left' | 'closed' = 'open';

  constructor(family: Family, owner: ListenSocketOwner) {
    this.family = family;
    this.owner = owner;
  }

  trafficOf(client: ClientAddress): Traffic {
    return this.owner.trafficOf({ client: client.address });
  }

  newSession(start: Omit<SessionStart, 'listenSocket'>): UdpSession {
    const session = this.makeSession({ ...start, listenSocket: this });
    this.known.set(...start.client.keys, session);
    return session;
  }

  sessions(): S[] {
    return [...this.known.values()];
  }

  forget({ client }: UdpSession): void {
    this.known.delete(...client.keys);
    this.#closeWhenLeft();
  }

  /**
   * Stops reading if this is one of the sockets that another process has `served`, by inode numbers. It closes when
   * the last session has ended, whose answers still leave from here; `close` does not wait for that.
   */
  leave(served: ReadonlySet<number>): void {
    if (this.#state !== 'open' || !this.stopReading(served)) return;
    this.#state = 'left';
    this.#closeWhenLeft();
  }

  /** Ends the sessions, whose answers cannot be sent any more, and frees the port. Idempotent. */
  async close(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'closed';
    this.owner.host.endAll(this.sessions());
    await this.closeSocket();
  }

  protected abstract makeSession(start: SessionStart): S;

  /** Leaves incoming datagrams to other owners of the socket, if it is served; false: it is not. */
  protected abstract stopReading(served: ReadonlySet<number>): boolean;

  protected abstract closeSocket(): Promise<void>;

  /** Undefined, counted and reported, when the client is refused. */
  protected begin(client: SessionClient): S | undefined {
    return this.owner.begin(this, client) as S | undefined;
  }

  #closeWhenLeft(): void {
    if (this.#state !== 'left' || !this.known.isEmpty) return;
    this.#state = 'closed';
    void this.closeSocket();
  }
}

/** Where a client sends from. */
export interface ClientAddress {
  readonly address: string;
  readonly port: number;
}

export interface SessionClient extends ClientAddress {
  /** Find its session at a listening socket. */
  readonly keys: readonly [unknown, unknown];
}

/** Values by two keys. Nested: a joined text would be built and hashed for every datagram. */
export class PairMap<A, B, V> {
  readonly #maps = new Map<A, Map<B, V>>();

  get(one: A, other: B): V | undefined {
    return this.#maps.get(one)?.get(other);
  }

  of(one: A): Iterable<V> {
    return this.#maps.get(one)?.values() ?? [];
  }

  set(one: A, other: B, value: V): void {
    const map = this.#maps.get(one);
    if (map === undefined) this.#maps.set(one, new Map([[other, value]]));
    else map.set(other, value);
  }

  delete(one: A, other: B): void {
    const map = this.#maps.get(one);
    map?.delete(other);
    if (map?.size === 0) this.#maps.delete(one);
  }

  get isEmpty(): boolean {
    return this.#maps.size === 0;
  }

  *values(): Generator<V> {
    for (const map of this.#maps.values()) yield* map.values();
  }
}
