import type { BalancerEndpoint, Pick, PickRequest } from '../../roundrobin/types.ts';
import type { Family } from '../../util/family.ts';
import type { Deadline, IdleLane } from '../core/timers.ts';
import type { TcpShared, Timed, HalfClosed } from './shared.ts';
import { clientSource } from '../core/client-source.ts';
import type { IndexEntry } from '../core/endpoint-index.ts';
import type { ServicePort } from '../core/service-port.ts';
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
import {
  addressText,
  clientAddress,
  countRejected,
  publishConnectFailed,
  publishEnded,
  publishPicked,
  publishStarted,
  relayAddresses,
} from './publish.ts';
import {
  connectErrorCause,
  loopError,
  selfConnectError,
  timeoutError,
  EndpointPicker,
} from './attempts.ts';
import type { HeldClient, Hold } from './hold-queue.ts';
import { headerFor } from './proxy-protocol.ts';
import type {
  DialOwner,
  HoldOwner,
  KnownAddress,
  RelayEnd,
  RelayOwner,
  TcpClient,
  TcpDial,
  TcpRelay,
} from './transport.ts';

/** Where the client connected. */
export interface Origin {
  readonly owner: ServicePort;
  readonly traffic: Traffic;
  readonly family: Family;
  /** The client that a load balancer has named. Endpoints do not see it as their peer: it could name any address. */
  readonly announced?: KnownAddress | undefined;
}

type State =
  | { readonly kind: 'held'; readonly hold: Hold }
  | {
      readonly kind: 'dialing';
      readonly dial: TcpDial;
      readonly endpoint: BalancerEndpoint;
      readonly deadline: Deadline<Timed>;
      readonly startedAt: number;
    }
  | {
      readonly kind: 'relaying';
      readonly relay: TcpRelay;
      readonly endpoint: BalancerEndpoint;
      readonly startedAt: number;
      readonly addresses: RelayAddresses | undefined;
    }
  | { readonly kind: 'ended' };

const ENDED: State = { kind: 'ended' };

/**
 * One accepted client, from the first attempt to connect to the end of its relay.
 *
 * An attempt has also failed when the endpoint resets the connection soon, before a byte went through either way: the
 * endpoint's kernel had accepted it, but no program has seen the client, so another endpoint may serve it. Once the
 * endpoint has been sent something, only the client can know whether that may be repeated.
 */
export class TcpConnection
  implements HoldOwner, DialOwner, RelayOwner, PickRequest, HeldClient, HalfClosed, Timed
{
  readonly traffic: Traffic;
  readonly family: Family;
  readonly counters: ServicePortCounters;

  lane: IdleLane<HalfClosed> | undefined = undefined;
  older: HalfClosed | undefined = undefined;
  newer: HalfClosed | undefined = undefined;
  usedAt = 0;
  idleLooks = 0;
  seenBytes = 0;
  seenUnsent: number | undefined = undefined;

  readonly #shared: TcpShared;
  readonly #client: TcpClient;
  readonly #owner: ServicePort;
  /** The timeouts in force when it began. */
  readonly #attempts: TcpShared['attempts'];
  #picker: EndpointPicker;
  #heldSince: number | undefined;
  readonly #announced: KnownAddress | undefined;
  #remote: KnownAddress | undefined;
  #state: State = ENDED;
  /** Set once an endpoint accepted the connection. */
  #relay: TcpRelay | undefined;
  #indexed: IndexEntry | undefined;
  #grace: Deadline<Timed> | undefined;
  #young: Deadline<Timed> | undefined;
  #isOver = false;

  /** Owns an accepted client that the gate has admitted. Call `start` next. */
  constructor(shared: TcpShared, client: TcpClient, origin: Origin) {
    this.#shared = shared;
    this.#client = client;
    this.#announced = origin.announced;
    this.#owner = origin.owner;
    this.traffic = origin.traffic;
    this.family = origin.family;
    this.counters = origin.owner.counters;
    this.#attempts = shared.attempts;
    this.#picker = new EndpointPicker(this.#attempts.length);
  }

  /** The client's IP; read only when needed, since it costs a system call. */
  get client(): string {
    return clientAddress(this.#remoteAddress());
  }

  get remoteAddress(): string {
    return addressText(this.#remoteAddress());
  }

  get heldSince(): number | undefined {
    return this.#heldSince;
  }

  get tried(): readonly BalancerEndpoint[] {
    return this.#picker.tried;
  }

  get servicePort(): string {
    return this.#owner.name;
  }

  get relay(): TcpRelay | undefined {
    return this.#relay;
  }

  inspect(): ConnectionSnapshot | undefined {
    const state = this.#state;
    if (state.kind === 'ended') return undefined;
    if (state.kind === 'held') return state.hold.inspect();
    const relay = state.kind === 'relaying' ? state.relay : undefined;
    return {
      servicePort: this.#owner.name,
      protocol: 'TCP',
      client: this.remoteAddress,
      endpoint: state.endpoint.text,
      state: relay === undefined ? 'connecting' : 'open',
      ageMs: relay === undefined ? 0 : this.#shared.clock.now() - state.startedAt,
      in: relay?.bytesIn ?? 0,
      out: relay?.bytesOut ?? 0,
    };
  }

  start(): void {
    this.#next('no-endpoint');
  }

  dialed(): void {
    const state = this.#state;
    if (state.kind !== 'dialing') return;
    if (this.#isConnectedToItself(state.dial, state.endpoint)) this.dialFailed(selfConnectError());
    else this.#relayTo(state.dial, state.endpoint, state.startedAt);
  }

  dialFailed(error: NodeJS.ErrnoException): void {
    if (this.#state.kind !== 'dialing') return;
    const { endpoint } = this.#state;
    this.#abandon();
    this.#next(this.#attemptFailed(endpoint, error));
  }

  timedOut(timeoutMs: number): void {
    this.dialFailed(timeoutError(timeoutMs));
  }

  /** The endpoint was removed: an attempt moves on to another one; a relay continues, for the grace period if set. */
  endpointGone(): void {
    if (this.#state.kind === 'dialing') {
      this.#abandon();
      // It does not count as an attempt: the next one has the same timeout.
      this.#picker.withdraw();
      this.#next('no-endpoint');
    } else if (this.#state.kind === 'relaying') {
      this.#grace = this.#shared.grace?.add(this);
    }
  }

  graceOver(): void {
    if (this.#state.kind === 'relaying') this.#state.relay.reset('endpoint-gone');
  }

  keepAlive(): void {
    if (this.#state.kind === 'relaying')
      this.#state.relay.keepAlive(this.#shared.limits.keepAliveMs);
  }

  halfClosed(): void {
    this.#shared.halfClosed.add(this);
  }

  halfCloseTimeout(): void {
    this.#relay?.reset('half-close-timeout');
  }

  destroy(): void {
    if (this.#state.kind === 'held') this.#state.hold.end('destroyed');
    this.#abandon();
    if (this.#relay !== undefined) this.#relay.reset('destroyed');
    else this.#resetClient();
  }

  /** Another endpoint is tried only within the time of an attempt. */
  endpointLost(error: NodeJS.ErrnoException): boolean {
    const state = this.#state;
    const attempt = this.#attempts[this.#picker.made - 1];
    if (state.kind !== 'relaying' || attempt === undefined) return false;
    if (this.#shared.clock.now() - state.startedAt > attempt.timeoutMs) return false;
    this.#endRelay('endpoint-reset');
    this.#next(this.#attemptFailed(state.endpoint, error, 'reset'));
    return true;
  }

  relayEnded(reason: RelayEnd): void {
    this.#abandon();
    this.#endRelay(reason);
    this.#leave();
  }

  endpointThere(): void {
    if (this.#state.kind !== 'held') return;
    this.#client.release();
    this.#next('no-endpoint');
  }

  clientGone(): void {
    if (this.#state.kind !== 'held') return;
    this.#state.hold.end('client-gone');
    this.#resetClient();
  }

  reject(reason: RejectReason): void {
    countRejected(this.#owner, reason, this);
    if (this.#relay !== undefined) this.#relay.reset('endpoint-reset');
    else this.#resetClient();
  }

  /** Makes the next attempt, or rejects the client for this reason. */
  #next(reason: RejectReason): void {
    let why: RejectReason | undefined = reason;
    while (why !== undefined) {
      const pick = this.#picker.next(this.#owner.balancer, this);
      if (pick === undefined) {
        this.#rejectOrHold(why);
        return;
      }
      why = this.#attempt(pick);
    }
  }

  /** Undefined if the attempt is in progress; otherwise why it failed at once. */
  #attempt(pick: Pick): RejectReason | undefined {
    const { endpoint } = pick;
    const { loops, index, clock } = this.#shared;
    const attempt = this.#attempts[this.#picker.made - 1];
    if (attempt === undefined) return undefined;
    if (this.#picker.made > 1) this.counters.retries += 1;
    publishPicked(this.#owner, pick, this.#picker.made, this);
    if (loops.loopsBack(this.#owner, endpoint)) {
      return this.#attemptFailed(endpoint, loopError(this.#owner.name, endpoint.text), 'loop');
    }
    const source = this.#announced ? undefined : clientSource(this.#owner, this, endpoint);
    const dial = this.#client.dial(endpoint, this, source);
    if (dial instanceof Error) return this.#attemptFailed(endpoint, dial);
    const deadline = attempt.running.add(this);
    this.#state = { kind: 'dialing', dial, endpoint, deadline, startedAt: clock.now() };
    this.#indexed = index.add(endpoint, this);
    return undefined;
  }

  /** Counts and publishes; returns why the client is rejected if no other endpoint is left to try. */
  #attemptFailed(
    endpoint: BalancerEndpoint,
    error: NodeJS.ErrnoException,
    cause: ConnectErrorCause = connectErrorCause(error),
  ): RejectReason {
    this.counters.connectErrors[cause] += 1;
    // Being out of descriptors or source ports is not the endpoint's fault.
    if (cause !== 'limit') this.#owner.balancer.connectFailed(endpoint, cause);
    publishConnectFailed(this.#owner, endpoint, this.#picker.made, cause, error);
    this.#picker.failed(endpoint, cause === 'timeout');
    return cause === 'limit' ? 'limit' : 'connect-failed';
  }

  #abandon(): void {
    if (this.#state.kind !== 'dialing') return;
    const { dial, deadline } = this.#state;
    this.#state = ENDED;
    deadline.remove();
    this.#indexed?.remove();
    dial.abandon();
  }

  /**
   * For an endpoint of this host, the kernel may choose the endpoint's port as our local port. If no process listens
   * there, TCP connects the socket to itself: clients would get their own bytes, and the endpoint not its port.
   */
  #isConnectedToItself(dial: TcpDial, { address, port }: BalancerEndpoint): boolean {
    const range = this.#shared.kernelPorts;
    if (range !== undefined && (port < range.first || port > range.last)) return false;
    const local = dial.localAddress();
    return local.port === port && local.address === address;
  }

  #relayTo(dial: TcpDial, endpoint: BalancerEndpoint, dialedAt: number): void {
    if (this.#state.kind !== 'dialing') return;
    this.#state.deadline.remove();
    const startedAt = this.#shared.clock.now();
    this.#owner.balancer.connected(endpoint, startedAt - dialedAt);
    endpoint.record.connections += 1;
    observeConnectSeconds(this.counters, (startedAt - dialedAt) / 1000);
    this.counters.active += 1;
    const addresses = relayAddresses(this.#owner, endpoint, this, this.#client, dial);
    const relay = dial.join(this);
    this.#relay = relay;
    this.#state = { kind: 'relaying', relay, endpoint, startedAt, addresses };
    this.#young = this.#shared.young.add(this);
    publishStarted(addresses);
    relay.start(headerFor(this.#owner, this.#client, this.#remote ?? this.#announced));
  }

  #rejectOrHold(why: RejectReason): void {
    const reason = rejectReason(this.#owner, this.traffic, why);
    if (reason !== 'no-endpoint' || this.#relay !== undefined) {
      this.reject(reason);
      return;
    }
    const hold = this.#shared.holds.enter(this, this.#owner);
    if (typeof hold === 'string') {
      this.reject(hold);
      return;
    }
    // Earlier attempts do not count when an endpoint is added.
    this.#picker = new EndpointPicker(this.#attempts.length);
    this.#heldSince ??= hold.since;
    this.#state = { kind: 'held', hold };
    this.#client.hold(this);
  }

  #endRelay(reason: RelayEnd): void {
    const state = this.#state;
    if (state.kind !== 'relaying') return;
    this.#state = ENDED;
    this.counters.active -= 1;
    const { record } = state.endpoint;
    record.bytesIn += state.relay.bytesIn;
    record.bytesOut += state.relay.bytesOut;
    if (reason === 'half-close-timeout') this.counters.halfCloseTimeouts += 1;
    this.#grace?.remove();
    this.#young?.remove();
    this.#indexed?.remove();
    this.#shared.halfClosed.remove(this);
    const durationMs = this.#shared.clock.now() - state.startedAt;
    publishEnded(state.addresses, state.relay, durationMs, reason);
  }

  #resetClient(): void {
    if (this.#isOver) return;
    this.#client.reset();
    this.#leave();
  }

  #leave(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#state = ENDED;
    this.#shared.gate.leave();
  }

  #remoteAddress(): KnownAddress {
    this.#remote ??= this.#announced ?? this.#client.remoteAddress();
    return this.#remote;
  }
}
