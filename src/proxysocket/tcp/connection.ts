import type { BalancerEndpoint, Pick, PickRequest } from '../../roundrobin/endpoint.ts';
import type { Family } from '../../util/family.ts';
import type { Deadline } from '../core/timers.ts';
import { HalfCloseWatch, type TcpConnections, type Timed } from './connections.ts';
import {
  connectErrorCause,
  loopError,
  selfConnectError,
  timeoutError,
} from '../core/connect-error.ts';
import type { IndexEntry } from '../core/endpoint-index.ts';
import { type OwnedListener, clientSource } from '../core/listener.ts';
import {
  attemptFailed,
  countRejected,
  publishPicked,
  type ServicePort,
} from '../core/service-port.ts';
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
import { isSelfConnect, EndpointPicker } from './attempts.ts';
import type { HeldClient } from './hold-queue.ts';
import { parseProxyHeader, proxyHeader } from './proxy-protocol.ts';
import type {
  DialOwner,
  HeadOwner,
  KnownAddress,
  RelayEnd,
  RelayOwner,
  TcpClient,
  TcpDial,
  TcpRelay,
} from './transport.ts';

type State =
  | { readonly kind: 'announced'; readonly deadline: Deadline<Timed> }
  | { readonly kind: 'held'; readonly deadline: Deadline<HeldClient> }
  | {
      readonly kind: 'dialing';
      readonly dial: TcpDial;
      readonly endpoint: BalancerEndpoint;
      readonly deadline: Deadline<Timed>;
    }
  | {
      readonly kind: 'relaying';
      readonly relay: TcpRelay;
      readonly endpoint: BalancerEndpoint;
      readonly since: number;
      readonly addresses: RelayAddresses | undefined;
    }
  | { readonly kind: 'idle' }
  | { readonly kind: 'over' };

const STATES = {
  announced: 'connecting',
  held: 'held',
  dialing: 'connecting',
  relaying: 'open',
} as const;

const IDLE: State = { kind: 'idle' };
const OVER: State = { kind: 'over' };

/**
 * One accepted client, from its header or the first attempt to connect to the end of its relay.
 *
 * An attempt has also failed when the endpoint resets the connection soon, before a byte went through either way: the
 * endpoint's kernel had accepted it, but no program has seen the client, so another endpoint may serve it. Once the
 * endpoint has been sent something, only the client can know whether that may be repeated.
 */
export class TcpConnection implements HeadOwner, DialOwner, RelayOwner, PickRequest, Timed {
  traffic: Traffic = 'internal';
  heldSince: number | undefined = undefined;
  readonly owner: ServicePort;
  readonly family: Family;
  readonly counters: ServicePortCounters;
  readonly #shared: TcpConnections;
  readonly #client: TcpClient;
  /** Reads the client's IP only where it matters. */
  readonly #origin: OwnedListener;
  #picker: EndpointPicker<TcpConnections['attempts'][number]>;
  /** The client that a load balancer has named. Endpoints do not see it as their peer: it could name any address. */
  #announced: KnownAddress | undefined;
  #remote: KnownAddress | undefined;
  #state: State = IDLE;
  relay: TcpRelay | undefined = undefined;
  #indexed: IndexEntry | undefined;
  #grace: Deadline<Timed> | undefined;
  #young: Deadline<Timed> | undefined;
  #halfClose: HalfCloseWatch | undefined;

  constructor(
    shared: TcpConnections,
    client: TcpClient,
    owner: ServicePort,
    origin: OwnedListener,
  ) {
    this.#shared = shared;
    this.#client = client;
    this.owner = owner;
    this.#origin = origin;
    this.family = origin.family;
    this.counters = owner.counters;
    this.#picker = new EndpointPicker(shared.attempts);
  }

  /** The client's IP, empty if it has left; read only when needed, since it costs a system call. */
  get client(): string {
    return this.#remoteAddress().address ?? '';
  }

  get remoteAddress(): string {
    return addressText(this.#remoteAddress());
  }

  get tried(): readonly BalancerEndpoint[] {
    return this.#picker.tried;
  }

  get servicePort(): string {
    return this.owner.name;
  }

  inspect(now: number): ConnectionSnapshot | undefined {
    const state = this.#state;
    if (state.kind === 'idle' || state.kind === 'over') return undefined;
    const relay = state.kind === 'relaying' ? state.relay : undefined;
    return {
      servicePort: this.owner.name,
      protocol: 'TCP',
      client: this.remoteAddress,
      endpoint: 'endpoint' in state ? state.endpoint.text : '',
      state: STATES[state.kind],
      ageMs:
        state.kind === 'dialing' ? 0 : now - ('deadline' in state ? state.deadline : state).since,
      in: relay?.bytesIn ?? 0,
      out: relay?.bytesOut ?? 0,
    };
  }

  start(): void {
    this.traffic = this.#origin.trafficOf(this);
    this.#next('no-endpoint');
  }

  /** The same when a header has announced who the client is. */
  startAnnounced(): void {
    this.#state = { kind: 'announced', deadline: this.#shared.headers.add(this) };
    this.#client.readHead(this);
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
    if (this.#state.kind !== 'announced') return;
    this.#abandon();
    if (this.#origin.admits(this)) this.start();
    else this.reject('source');
  }

  dialed(): void {
    const state = this.#state;
    if (state.kind !== 'dialing') return;
    const { dial, endpoint, deadline } = state;
    if (isSelfConnect(dial, endpoint, this.#shared.kernelPorts)) {
      this.dialFailed(selfConnectError());
      return;
    }
    deadline.remove();
    const since = this.#shared.clock.now();
    const tookMs = since - deadline.since;
    this.owner.balancer.connected(endpoint, tookMs);
    endpoint.record.connections += 1;
    observeConnectSeconds(this.counters, tookMs / 1000);
    this.counters.active += 1;
    const addresses = publishStarted(this.owner, endpoint, this, this.#client, dial);
    const relay = dial.join(this);
    this.relay = relay;
    this.#state = { kind: 'relaying', relay, endpoint, since, addresses };
    this.#young = this.#shared.young.add(this);
    const { proxyProtocol: version } = this.owner;
    const header =
      version && proxyHeader(version, this.#remoteAddress(), this.#client.localAddress());
    relay.start(header);
  }

  dialFailed(error: NodeJS.ErrnoException): void {
    if (this.#state.kind !== 'dialing') return;
    const { endpoint } = this.#state;
    this.#abandon();
    this.#next(this.#attemptFailed(endpoint, error));
  }

  timedOut(timeoutMs: number): void {
    if (this.#state.kind === 'announced') this.reject('proxy-header');
    else this.dialFailed(timeoutError(timeoutMs));
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

  halfClosed(): void {
    if (this.relay !== undefined) this.#halfClose = new HalfCloseWatch(this.#shared, this.relay);
  }

  destroy(): void {
    if (this.#state.kind === 'held') this.#shared.holds.end(this, 'destroyed');
    this.#abandon();
    if (this.relay !== undefined) this.relay.reset('destroyed');
    else this.#resetClient();
  }

  /** Another endpoint is tried only within the time of an attempt. */
  endpointLost(error: NodeJS.ErrnoException): boolean {
    const state = this.#state;
    const timeoutMs = this.#picker.attempt?.timeoutMs ?? 0;
    if (state.kind !== 'relaying' || this.#shared.clock.now() - state.since > timeoutMs)
      return false;
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
    if (this.#state.kind === 'held') this.#shared.holds.end(this, 'client-gone');
    else if (this.#state.kind !== 'announced') return;
    this.#resetClient();
  }

  reject(reason: RejectReason): void {
    countRejected(this.owner, reason, this);
    if (this.relay !== undefined) this.relay.reset('endpoint-reset');
    else this.#resetClient();
  }

  #next(reason: RejectReason): void {
    let why: RejectReason | undefined = reason;
    while (why !== undefined) {
      const pick = this.#picker.next(this.owner.balancer, this);
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
    const { loops, index } = this.#shared;
    const { attempt } = this.#picker;
    if (attempt === undefined) return undefined;
    if (this.#picker.made > 1) this.counters.retries += 1;
    publishPicked(this.owner, pick, this.#picker.made, this);
    if (loops.loopsBack(this.owner, endpoint)) {
      return this.#attemptFailed(endpoint, loopError(this.owner.name, endpoint.text), 'loop');
    }
    const source = this.#announced ? undefined : clientSource(this.owner, this, endpoint);
    const dial = this.#client.dial(endpoint, this, source);
    if (dial instanceof Error) return this.#attemptFailed(endpoint, dial);
    this.#state = { kind: 'dialing', dial, endpoint, deadline: attempt.running.add(this) };
    this.#indexed = index.add(endpoint, this);
    return undefined;
  }

  /** Counts and publishes; returns why the client is rejected if no other endpoint is left to try. */
  #attemptFailed(
    endpoint: BalancerEndpoint,
    error: NodeJS.ErrnoException,
    cause: ConnectErrorCause = connectErrorCause(error),
  ): RejectReason {
    attemptFailed(this.owner, endpoint, this.#picker.made, cause, error);
    this.#picker.failed(endpoint, cause === 'timeout');
    return cause === 'limit' ? 'limit' : 'connect-failed';
  }

  /** No header, or no answer to a dial, is awaited any more. */
  #abandon(): void {
    const state = this.#state;
    if (state.kind !== 'announced' && state.kind !== 'dialing') return;
    this.#state = IDLE;
    state.deadline.remove();
    if (state.kind === 'announced') return;
    this.#indexed?.remove();
    state.dial.abandon();
  }

  #rejectOrHold(why: RejectReason): void {
    const reason = rejectReason(this.owner, this.traffic, why);
    if (reason !== 'no-endpoint' || this.relay !== undefined) {
      this.reject(reason);
      return;
    }
    const deadline = this.#shared.holds.enter(this);
    if (typeof deadline === 'string') {
      this.reject(deadline);
      return;
    }
    // Earlier attempts do not count when an endpoint is added.
    this.#picker = new EndpointPicker(this.#shared.attempts);
    this.#state = { kind: 'held', deadline };
    this.#client.hold(this);
  }

  #endRelay(reason: RelayEnd): void {
    const state = this.#state;
    if (state.kind !== 'relaying') return;
    this.#state = IDLE;
    this.counters.active -= 1;
    const { record } = state.endpoint;
    record.bytesIn += state.relay.bytesIn;
    record.bytesOut += state.relay.bytesOut;
    if (reason === 'half-close-timeout') this.counters.halfCloseTimeouts += 1;
    this.#grace?.remove();
    this.#young?.remove();
    this.#indexed?.remove();
    this.#halfClose?.end();
    const durationMs = this.#shared.clock.now() - state.since;
    publishEnded(state.addresses, state.relay, durationMs, reason);
  }

  #resetClient(): void {
    if (this.#state.kind === 'over') return;
    this.#abandon();
    this.#client.reset();
    this.#leave();
  }

  #leave(): void {
    this.#state = OVER;
    this.#shared.gate.leave();
  }

  #remoteAddress(): KnownAddress {
    return (this.#remote ??= this.#client.remoteAddress());
  }
}
