import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import type { Listening } from '../core/listener.ts';
import type { RelayEnded } from '../events.ts';
import type { ListenSpec } from '../spec.ts';

/**
 * What TCP needs of an operating system: sockets that listen, dial and relay. A transport knows nothing of
 * service ports, balancers, limits or time limits; those are in this folder, once for all transports.
 *
 * ## The relay contract
 *
 * Each clause has tests in test/proxysocket/tcp/, which run against every transport.
 *
 * 1. Bytes arrive in order and unchanged, in each direction independently (`torture`).
 * 2. A slow peer holds back the other side: a direction keeps at most one read that its sink has not taken, and
 *    reads no more until it has (`back-pressure`).
 * 3. A FIN is passed on behind the data before it; the other direction stays open. When both sides have sent theirs, both
 *    sockets close, and the relay has ended: `closed` (`half-close`).
 * 4. Once one side has sent its FIN, bytes must keep moving: after the half-close time without any, both sides are
 *    reset: `half-close-timeout` (`half-close`).
 * 5. A reset, or any other error, of one side resets the other one: `client-reset`, `endpoint-reset` (`reset`).
 * 6. But an endpoint that breaks before a byte or a FIN went through, either way, is lost without a trace: the client and
 *    what it has sent meanwhile may go to another endpoint (`reset`).
 * 7. A client that leaves while it is not read (it is held, or dialed for) is noticed at the latest when it is
 *    read (`held`, `connect`).
 */
export interface TcpTransport {
  /** Rejects with the system's error. Accepted clients outlive the listener. */
  listen(spec: ListenSpec, owner: AcceptOwner): Promise<Listening>;
}

export interface AcceptOwner {
  /** The client belongs to the callee: `reset` or a relay ends it. */
  accepted(client: TcpClient): void;
  /** The process or the system has no descriptor left for a client: it is dropped, or waits for one; called once then. */
  acceptFailed(): void;
}

/** An address; empty when it is not known, because the peer has left. */
export interface KnownAddress {
  readonly address?: string | undefined;
  readonly port?: number | undefined;
}

/** The socket of an accepted client, which is not read before it has an endpoint; then its relay, too. */
export interface TcpClient extends Readonly<ByteCounters> {
  /** Set as soon as the client is accepted, and called back from then on. */
  owner: ClientOwner;
  /** Costs a system call, as `localAddress` does. */
  remoteAddress(): KnownAddress;
  localAddress(): KnownAddress;
  /** Closes it with a reset; once it is relayed, its endpoint as well: only the first reason counts then, and `relayEnded` follows. */
  reset(reason: RelayEnd): void;
  /**
   * Watches whether the client leaves, until `release`. It leaves by a reset, and by a FIN before it has sent anything;
   * one that has sent a request and its FIN may want the answer.
   */
  hold(): void;
  release(): void;
  /**
   * Reads until the owner has the head of what the client sends, and takes that off; the rest stays. Instead of
   * `headTaken`, `clientGone` is called when the client leaves before. Not while it is held.
   */
  readHead(): void;
  /**
   * Starts to connect; an error when that has failed at once. One at a time. `source`: the IP literal that the
   * endpoint is to see, which only transports with transparent sockets can do.
   */
  dial(endpoint: BalancerEndpoint, source?: string): TcpDial | Error;
  /** Bytes that were passed on and have not reached the peers, as far as the transport knows. */
  unsent(): number;
  /** Enables TCP keep-alive probes of the endpoint after this idle time. Milliseconds. */
  keepAlive(idleMs: number): void;
}

/** An attempt to connect; `dialed` or `dialFailed` is called once, unless it is abandoned. */
export interface TcpDial {
  localAddress(): KnownAddress;
  /** Closes it without calling the owner. */
  abandon(): void;
  /**
   * Moves bytes between the client and the endpoint that was dialed. `header`: goes to the endpoint first and does not
   * count. May call the owner back at once.
   */
  relay(header?: Uint8Array): void;
}

export type RelayEnd = RelayEnded['reason'];

/** Bytes that were passed on: from the client (`bytesIn`), and to it. */
export interface ByteCounters {
  bytesIn: number;
  bytesOut: number;
}

export const MAX_HEAD_BYTES = 4096;

export interface ClientOwner {
  /** The transport adds the bytes that it passes on. */
  readonly counters: ByteCounters;
  clientGone(): void;
  /** Called with all bytes so far whenever more arrive. Returns the length of the head, or undefined to wait. */
  head(bytes: Uint8Array): number | undefined;
  headTaken(): void;
  dialed(): void;
  dialFailed(error: NodeJS.ErrnoException): void;
  halfClosed(): void;
  /**
   * The endpoint broke before anything went through; its socket is closed. True: another endpoint is being dialed, and
   * `relay` follows, or `reset`. False: the transport resets the client.
   */
  endpointLost(error: NodeJS.ErrnoException): boolean;
  /** Both sockets of a relay are closed. Called once. */
  relayEnded(reason: RelayEnd): void;
  /** A bug of this program: the connection has to end. */
  destroy(): void;
}
