import type { BalancerEndpoint, Pick, PickRequest } from '../../roundrobin/endpoint.ts';
import type { Family } from '../../util/family.ts';
import type { Deadline } from '../core/timers.ts';
import { HALF_CLOSE_LOOKS, type Queued, type TcpConnections } from './connections.ts';
import {
  attemptFailed,
  countRejected,
  publishPicked,
  type ServicePort,
} from '../core/service-port.ts';
import {
  connectErrorCause,
  loopError,
  selfConnectError,
  timeoutError,
} from '../core/socket-errors.ts';
import type { IndexEntry } from '../core/endpoint-index.ts';
import { type OwnedListener, clientSource } from '../core/listener.ts';
import {
  observeConnectSeconds,
  rejectReason,
  type ConnectErrorCause,
  type RejectReason,
  type ServicePortCounters,
} from '../counters.ts';
import type { RelayAddresses } from '../events.ts';
import type { ConnectionSnapshot } from '../inspect.ts';
import type { Traffic } from '../spec.ts';
import { addressText, publishEnded, publishStarted } from './publish.ts';
import { parseProxyHeader, proxyHeader } from './proxy-protocol.ts';
import type { ClientOwner, KnownAddress, RelayEnd, TcpClient, TcpDial } from './transport.ts';

const STATES = {
  announced: 'connecting',
  held: 'held',
  dialing: 'connecting',
  relaying: 'open',
} as const;

const NONE: readonly BalancerEndpoint[] = [];

/**
 * One accepted client, from its header or the first attempt to connect to the end of its relay.
 *
 * Each attempt gets an untried endpoint, if there is one. Those that timed out are retried after that, with the longer
 * timeouts of later attempts; those that refused are not.
 *
 * An attempt has also failed when the endpoint resets the connection soon, before a byte went through either way: the
 * endpoint's kernel had accepted it, but no program has seen the client, so another endpoint may serve it. Once the
 * endpoint has been sent something, only the client can know whether that may be repeated.
 */
export class TcpConnection implements ClientOwner, PickRequest, Queued {
  traffic: Traffic = 'internal';
  heldSince: number | undefined = undefined;
  hold: Queued['hold'] = undefined;
  tried = NONE;
  readonly owner: ServicePort;
  readonly family: Family;
  readonly counters: ServicePortCounters;
  readonly socket: TcpClient;
  readonly #shared: TcpConnections;
  /** Reads the client's IP only where it matters. */
  readonly #origin: OwnedListener;
  #state: keyof typeof STATES | 'idle' | 'over' = 'idle';
  /** The client that a load balancer has named. Endpoints do not see it as their peer: it could name any address. */
  #announced: KnownAddress | undefined;
  #remote: KnownAddress | undefined;
  #attempts: TcpConnections['attempts'];
  /** Attempts so far, including the current one. */
  #made = 0;
  #refused = NONE;
  /** Of the header, or of the attempt; only in these states. */
  #deadline!: Deadline<Queued>;
  /** While it is dialed or relayed to. */
  #endpoint!: BalancerEndpoint;
  #dial!: TcpDial;
  #indexed: IndexEntry | undefined;
  /** From the first endpoint on that took the connection. */
  #isRelayed = false;
  #since = 0;
  #addresses: RelayAddresses | undefined;
  #grace: Deadline<Queued> | undefined;
  #young: Deadline<Queued> | undefined;
  #halfClose: Deadline<Queued> | undefined;
  /** Bytes that had reached the peers at the last check of a half-closed relay, and checks since they last moved. */
  #arrived = 0;
  #idleLooks = 0;

  constructor(shared: TcpConnections, socket: TcpClient, origin: OwnedListener) {
    const { owner, family } = origin;
    this.#shared = shared;
    this.#attempts = shared.attempts;
    this.socket = socket;
    this.owner = owner;
    this.#origin = origin;
    this.family = family;
    this.counters = owner.counters;
    socket.owner = this;
  }

  /** The client's IP, empty if it has left; read only when needed, since it costs a system call. */
  get client(): string {
    return this.#remoteAddress().address ?? '';
  }

  get remoteAddress(): string {
    return addressText(this.#remoteAddress());
  }

  get bytesIn(): number {
    return this.socket.bytesIn;
  }

  get bytesOut(): number {
    return this.socket.bytesOut;
  }

  inspect(now: number): ConnectionSnapshot | undefined {
    const state = this.#state;
    if (state === 'idle' || state === 'over') return undefined;
    const hasEndpoint = state === 'dialing' || state === 'relaying';
    const since =
      state === 'relaying' ? this.#since : (this.hold?.deadline ?? this.#deadline).since;
    return {
      servicePort: this.owner.name,
      protocol: 'TCP',
      client: this.remoteAddress,
      endpoint: hasEndpoint ? this.#endpoint.text : '',
      state: STATES[state],
      ageMs: state === 'dialing' ? 0 : now - since,
      in: this.bytesIn,
      out: this.bytesOut,
    };
  }

  start(): void {
    this.traffic = this.#origin.trafficOf(this);
    this.#next('no-endpoint');
  }

  /** The same when a header has announced who the client is. */
  startAnnounced(): void {
    this.#state = 'announced';
    this.#deadline = this.#shared.headers.add(this);
    this.socket.readHead();
  }

  head(bytes: Uint8Array): number | undefined {
    const header = parseProxyHeader(bytes);
    if (header === 'invalid') this.reject('proxy-header');
    if (typeof header === 'string') return undefined;
    this.#announced = header.source;
    this.#remote = header.source ?? this.#remote;
    return header.length;
  }

  headTaken(): void {
    if (this.#state !== 'announced') return;
    this.#abandon();
    if (this.#origin.admits(this)) this.start();
    else this.reject('source');
  }

  dialed(): void {
    if (this.#state !== 'dialing') return;
    const endpoint = this.#endpoint;
    const itself =
      this.#shared.mayChoose(endpoint.port) &&
      selfConnectError(this.#dial.localAddress(), endpoint);
    if (itself) {
      this.dialFailed(itself);
      return;
    }
    this.#deadline.remove();
    this.#since = this.#shared.clock.now();
    const tookMs = this.#since - this.#deadline.since;
    this.owner.balancer.connected(endpoint, tookMs);
    endpoint.record.connections += 1;
    observeConnectSeconds(this.counters, tookMs / 1000);
    this.counters.active += 1;
    this.#addresses = publishStarted(this.owner, endpoint, this, this.socket, this.#dial);
    this.#state = 'relaying';
    this.#isRelayed = true;
    this.#young = this.#shared.young.add(this);
    const { proxyProtocol: version } = this.owner;
    const header =
      version && proxyHeader(version, this.#remoteAddress(), this.socket.localAddress());
    this.#dial.relay(header);
  }

  dialFailed(error: NodeJS.ErrnoException): void {
    if (this.#state !== 'dialing') return;
    this.#abandon();
    this.#next(this.#attemptFailed(error));
  }

  timedOut(timeoutMs: number): void {
    if (this.#state === 'announced') this.reject('proxy-header');
    else this.dialFailed(timeoutError(timeoutMs));
  }

  /** The endpoint was removed: an attempt moves on to another one; a relay continues, for the grace period if set. */
  endpointGone(): void {
    if (this.#state === 'dialing') {
      this.#abandon();
      // It does not count as an attempt: the next one has the same timeout.
      this.#made -= 1;
      this.#next('no-endpoint');
    } else if (this.#state === 'relaying') {
      this.#grace = this.#shared.grace?.add(this);
    }
  }

  halfClosed(): void {
    // What is unsent costs two system calls.
    this.#arrived = this.bytesIn + this.bytesOut;
    this.#halfClose = this.#shared.halfClosed.add(this);
  }

  /**
   * Resets a half-closed relay in which no bytes move any more: none was passed on, and the peer reads none that the
   * system has yet to send. Checks are counted, so time in which the event loop was blocked is not. A new limit applies
   * from the next check on.
   */
  look(): void {
    const arrived = this.bytesIn + this.bytesOut - this.socket.unsent();
    this.#idleLooks = arrived === this.#arrived ? this.#idleLooks + 1 : 0;
    this.#arrived = arrived;
    if (this.#idleLooks < HALF_CLOSE_LOOKS) this.#halfClose = this.#shared.halfClosed.add(this);
    else this.socket.reset('half-close-timeout');
  }

  destroy(): void {
    this.#shared.endHold(this, 'destroyed');
    this.#reset('destroyed');
  }

  /** Another endpoint is tried only within the time of an attempt. */
  endpointLost(error: NodeJS.ErrnoException): boolean {
    const { ms } = this.#attempts[this.#made - 1] ?? { ms: 0 };
    if (this.#state !== 'relaying' || this.#shared.clock.now() - this.#since > ms) return false;
    this.#endRelay('endpoint-reset');
    this.#next(this.#attemptFailed(error, 'reset'));
    return true;
  }

  relayEnded(reason: RelayEnd): void {
    this.#abandon();
    this.#endRelay(reason);
    this.#leave();
  }

  endpointThere(): void {
    if (this.#state !== 'held') return;
    this.socket.release();
    this.#next('no-endpoint');
  }

  clientGone(): void {
    if (this.#state !== 'held' && this.#state !== 'announced') return;
    this.#shared.endHold(this, 'client-gone');
    this.#reset('client-reset');
  }

  reject(reason: RejectReason): void {
    countRejected(this.owner, reason, this);
    this.#reset('endpoint-reset');
  }

  #next(reason: RejectReason): void {
    let why: RejectReason | undefined = reason;
    while (why !== undefined) {
      const pick = this.#pick();
      if (pick === undefined) {
        this.#rejectOrHold(why);
        return;
      }
      why = this.#attempt(pick);
    }
  }

  /** Picks for the next attempt; undefined when none is left to make. */
  #pick(): Pick | undefined {
    if (this.#made >= this.#attempts.length) return undefined;
    const { balancer } = this.owner;
    let pick = balancer.pick(this);
    // A balancer without untried endpoints returns a tried one.
    if (pick !== undefined && this.tried.includes(pick.endpoint)) {
      this.tried = this.#refused;
      pick = balancer.pick(this);
    }
    if (pick === undefined || this.tried.includes(pick.endpoint)) return undefined;
    this.#made += 1;
    return pick;
  }

  /** Undefined if the attempt is in progress; otherwise why it failed at once. */
  #attempt(pick: Pick): RejectReason | undefined {
    const { endpoint } = pick;
    const { loops, index } = this.#shared;
    const running = this.#attempts[this.#made - 1];
    if (running === undefined) return undefined;
    this.#endpoint = endpoint;
    if (this.#made > 1) this.counters.retries += 1;
    publishPicked(this.owner, pick, this.#made, this);
    if (loops.loopsBack(this.owner.name, endpoint)) {
      return this.#attemptFailed(loopError(this.owner.name, endpoint.text), 'loop');
    }
    const source = this.#announced ? undefined : clientSource(this.owner, this, endpoint);
    const dial = this.socket.dial(endpoint, source);
    if (dial instanceof Error) return this.#attemptFailed(dial);
    this.#dial = dial;
    this.#state = 'dialing';
    this.#deadline = running.add(this);
    this.#indexed = index.add(endpoint, this);
    return undefined;
  }

  /** Counts and publishes; returns why the client is rejected if no other endpoint is left to try. */
  #attemptFailed(
    error: NodeJS.ErrnoException,
    cause: ConnectErrorCause = connectErrorCause(error),
  ): RejectReason {
    const endpoint = this.#endpoint;
    attemptFailed(this.owner, endpoint, this.#made, cause, error);
    this.tried = [...this.tried, endpoint];
    // After a timeout, more time may help.
    if (cause !== 'timeout') this.#refused = [...this.#refused, endpoint];
    return cause === 'limit' ? 'limit' : 'connect-failed';
  }

  /** No header, or no answer to a dial, is awaited any more. */
  #abandon(): void {
    const state = this.#state;
    if (state !== 'announced' && state !== 'dialing') return;
    this.#state = 'idle';
    this.#deadline.remove();
    if (state === 'announced') return;
    this.#indexed?.remove();
    this.#dial.abandon();
  }

  #rejectOrHold(why: RejectReason): void {
    let reason: RejectReason | undefined = rejectReason(this.owner, this.traffic, why);
    if (reason === 'no-endpoint' && !this.#isRelayed) reason = this.#shared.hold(this);
    if (reason !== undefined) {
      this.reject(reason);
      return;
    }
    // Earlier attempts do not count when an endpoint is added.
    this.#attempts = this.#shared.attempts;
    this.#made = 0;
    this.tried = NONE;
    this.#refused = NONE;
    this.#state = 'held';
    this.socket.hold();
  }

  #endRelay(reason: RelayEnd): void {
    if (this.#state !== 'relaying') return;
    this.#state = 'idle';
    this.counters.active -= 1;
    const { record } = this.#endpoint;
    record.bytesIn += this.bytesIn;
    record.bytesOut += this.bytesOut;
    if (reason === 'half-close-timeout') this.counters.halfCloseTimeouts += 1;
    this.#grace?.remove();
    this.#young?.remove();
    this.#indexed?.remove();
    this.#halfClose?.remove();
    const durationMs = this.#shared.clock.now() - this.#since;
    publishEnded(this.#addresses, this.socket, durationMs, reason);
  }

  /** A relay reports its end later. */
  #reset(reason: RelayEnd): void {
    if (this.#state === 'over') return;
    this.#abandon();
    this.socket.reset(reason);
    if (!this.#isRelayed) this.#leave();
  }

  #leave(): void {
    this.#state = 'over';
    this.#shared.gate.leave();
  }

  #remoteAddress(): KnownAddress {
    return (this.#remote ??= this.socket.remoteAddress());
  }
}
