import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import type { Family } from '../../util/family.ts';
import type { ServicePort } from '../core/service-port.ts';
import type { IdleEntry } from '../core/timers.ts';
import type { UdpSessionEnded } from '../events.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import type { ClientAddress } from './tables.ts';

/**
 * What UDP needs of an operating system: sockets that listen, and sessions that carry datagrams between a client of
 * such a socket and an endpoint. Who gets a session, and when it ends, is decided in this folder.
 */
export interface UdpTransport<S extends UdpSession<S>> {
  /** Rejects with the system's error. */
  listen(spec: ListenSpec, owner: FrontOwner<S>): Promise<UdpListening<S>>;
  /** A session whose socket is not open yet. */
  newSession(host: SessionHost<S>, start: SessionStart<S['front']>): S;
}

/** The sockets of one listener. */
export interface UdpListening<S extends UdpSession<S>> {
  readonly boundPort: number;
  fronts(): readonly Front<S>[];
  /** Resolves when the port is free. Idempotent. */
  close(): Promise<void>;
}

/** The listener that a front belongs to. */
export interface FrontOwner<S extends UdpSession<S>> {
  readonly traffic: Traffic;
  /** Begins a session for a client that has none; undefined, counted and reported, when it gets none. */
  begin(front: S['front'], client: ClientAddress): S | undefined;
  /** A datagram could not be received or passed on. */
  dropped(): void;
  /** Ends sessions that a front does not serve any more. */
  endAll(sessions: readonly S[]): void;
}

export type EndReason = UdpSessionEnded['reason'];

/** What the sessions know of the front that one belongs to. */
export interface SessionFront<S> {
  readonly family: Family;
  readonly traffic: Traffic;
  /** A session of this front has ended. */
  forget(session: S): void;
}

/** Where a session sends from: the client that its endpoint sees. */
export interface Exit<S> {
  readonly session: S;
  readonly client: ClientAddress;
}

/** What a session is made with. */
export interface SessionStart<F> {
  readonly front: F;
  readonly owner: ServicePort;
  readonly client: ClientAddress;
  readonly endpoint: BalancerEndpoint;
  /** Sessions of this process that its client's datagrams have passed before. */
  readonly hops: number;
}

/** One client port of one listening socket, and a socket that is connected to its endpoint. */
export interface UdpSession<S extends UdpSession<S>> extends IdleEntry<S> {
  readonly front: SessionFront<S>;
  readonly owner: ServicePort;
  readonly client: ClientAddress;
  readonly hops: number;
  /** Set once it is open. Written by the host. */
  exit: Exit<S> | undefined;
  /** Endpoints that could not be had. Written by the host. */
  tried: readonly BalancerEndpoint[];
  /** Whether another session was evicted because this one got no socket. Written by the host. */
  madeRoom: boolean;
  /** Set by the host before it calls `open`. */
  endpoint: BalancerEndpoint;
  readonly datagramsIn: number;
  readonly datagramsOut: number;
  readonly isOpen: boolean;
  readonly hasEnded: boolean;
  /** Opens the socket to `endpoint`, in place of one that could not be had. */
  open(): void;
  /** Frees its descriptor at once. Returns how many datagrams were still waiting. */
  end(): number;
}

/** What a session needs of the sessions that hold it. */
export interface SessionHost<S> {
  readonly socketBuffer: number;
  readonly sendQueueBytes: number;
  /** A datagram of the session was dropped because too much waits for its socket. */
  queueFull(session: S): void;
  /** A datagram went through the session. */
  touch(session: S): void;
  /** The socket is connected; `local` is its own address. */
  opened(session: S, local: ClientAddress): void;
  /** The socket could not be had. The host calls `open` again, or ends the session. */
  openFailed(session: S, error: Error): void;
  /** The connected socket reported that a datagram is lost; the host ends the session if it has to. */
  failed(session: S, error: Error): void;
}

/** Whether an address means every address of its family: `::` has other spellings, all of which hold only zeros. */
export function isWildcard(address: string): boolean {
  return /^[0:.]+$/.test(address);
}

/**
 * One listening socket and the sessions of its clients. A transport knows how to find those, to read and to close.
 */
export abstract class Front<S extends UdpSession<S>> {
  readonly family: Family;
  protected readonly owner: FrontOwner<S>;
  #state: 'open' | 'left' | 'closed' = 'open';

  constructor(family: Family, owner: FrontOwner<S>) {
    this.family = family;
    this.owner = owner;
  }

  get traffic(): Traffic {
    return this.owner.traffic;
  }

  /** The sessions of this socket. */
  abstract all(): S[];

  /** Takes an ended session out. */
  forget(session: S): void {
    this.remove(session);
    this.#closeWhenLeft();
  }

  /**
   * Reads no more if this is one of the sockets that another process has `served` by now, by inode numbers. It closes
   * when the last session has ended, whose answers still leave from here; `close` does not wait for that.
   */
  leave(served: ReadonlySet<number>): void {
    if (this.#state !== 'open' || !this.stopReading(served)) return;
    this.#state = 'left';
    this.#closeWhenLeft();
  }

  /** Ends the sessions, whose answers have no way out any more, and frees the port. Idempotent. */
  async close(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'closed';
    this.owner.endAll(this.all());
    await this.closeSocket();
  }

  protected abstract remove(session: S): void;

  protected abstract isEmpty(): boolean;

  /** Leaves what comes in to others who have the socket, if it is served; false: it does not. */
  protected abstract stopReading(served: ReadonlySet<number>): boolean;

  protected abstract closeSocket(): Promise<void>;

  #closeWhenLeft(): void {
    if (this.#state !== 'left' || !this.isEmpty()) return;
    this.#state = 'closed';
    void this.closeSocket();
  }
}
