import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import type { Family } from '../../util/family.ts';
import type { UdpSessionEnded } from '../events.ts';
import type { ServicePort } from '../core/service-port.ts';
import type { Traffic } from '../spec.ts';
import type { ClientAddress } from './client-table.ts';
import type { IdleEntry } from '../core/idle-lanes.ts';

export type EndReason = UdpSessionEnded['reason'];

/** What the book of sessions knows of the listening socket that a session belongs to. */
export interface TableFront<S> {
  readonly family: Family;
  readonly traffic: Traffic;
  /** Called when a session of this front has ended. */
  forget(session: S): void;
}

/** Where a session sends from: the client that its endpoint sees. */
export interface Exit<S> {
  readonly session: S;
  readonly client: ClientAddress;
}

/** What a session is made with. */
export interface SessionStart<Front> {
  readonly front: Front;
  readonly owner: ServicePort;
  readonly client: ClientAddress;
  readonly endpoint: BalancerEndpoint;
  /** Sessions of this process that its client's datagrams have passed before. */
  readonly hops: number;
}

/** A session as the book sees it, whatever its sockets are made of. */
export interface TableSession<S extends TableSession<S>> extends IdleEntry<S> {
  readonly front: TableFront<S>;
  readonly owner: ServicePort;
  readonly client: ClientAddress;
  readonly hops: number;
  /** There once it is open. Written by the host. */
  exit: Exit<S> | undefined;
  /** Endpoints that could not be had. Written by the host. */
  tried: readonly BalancerEndpoint[];
  /** Whether another session had to go because this one got no socket. Written by the host. */
  madeRoom: boolean;
  /** Set by the host before it calls `open`. */
  endpoint: BalancerEndpoint;
  readonly datagramsIn: number;
  readonly datagramsOut: number;
  readonly isOpen: boolean;
  readonly hasEnded: boolean;
  /** Opens the backend socket to `endpoint`, in place of one that could not be had. */
  open(): void;
  /** Frees its descriptor at once. Returns how many datagrams were still waiting. */
  end(): number;
}

/** What a session needs from the book that holds it. */
export interface SessionHost<S> {
  readonly socketBuffer: number;
  readonly sendQueueBytes: number;
  /** A datagram of the session was dropped because too much waits for its socket. */
  queueFull(session: S): void;
  /** A datagram went through the session. */
  touch(session: S): void;
  /** The backend socket is connected; `local` is its own address. */
  opened(session: S, local: ClientAddress): void;
  /** The backend socket could not be had. The host calls `open` again, or ends the session. */
  openFailed(session: S, error: Error): void;
  /** The connected backend socket reported that a datagram is lost; the host ends the session if it has to. */
  failed(session: S, error: Error): void;
}

export type MakeSession<S extends TableSession<S>> = (
  host: SessionHost<S>,
  start: SessionStart<S['front']>,
) => S;
