import type { Socket } from 'node:net';
import type { BalancerEndpoint, Pick, PickRequest } from '../../roundrobin/types.ts';
import type { Family } from '../../util/family.ts';
import { observeConnectSeconds, type ConnectErrorCause, type RejectReason } from '../counters.ts';
import { connectFailed, endpointPicked, relayEnded, relayStarted } from '../events.ts';
import type { RelayAddresses } from '../events.ts';
import type { ServicePort } from '../service-port.ts';
import type { Traffic } from '../spec.ts';
import { addressText, clientAddress } from './addresses.ts';
import { Attempt, type AttemptOwner } from './attempt.ts';
import { Direction } from './direction.ts';
import type { Deadline } from './deadlines.ts';
import type { IndexEntry } from './endpoint-index.ts';
import type { HandleAddress } from './handle.ts';
import type { Incoming } from './incoming.ts';
import { rejectClient } from './reject.ts';
import { Relay, type RelayEnd } from './relay.ts';
import { resetSocket } from './reset.ts';
import type { SharedConnection, TcpShared } from './shared.ts';

const NONE: readonly BalancerEndpoint[] = [];

/** Where the client came in. */
export interface Origin {
  readonly owner: ServicePort;
  readonly traffic: Traffic;
  readonly family: Family;
}

type State =
  | { readonly kind: 'connecting'; readonly attempt: Attempt }
  | { readonly kind: 'relaying'; readonly relay: Relay }
  | { readonly kind: 'ended' };

const ENDED: State = { kind: 'ended' };

/**
 * One accepted client, from the first attempt to connect to the end of its relay.
 *
 * Each attempt takes an endpoint that this client has not tried, while there is one. Endpoints that
 * only were too slow are tried again after that, with the longer limit of the later attempts; those
 * that refused are not. (kube-proxy's userspace mode makes four attempts in the order of the
 * rotation, whatever the outcome.)
 *
 * The client is not read before it has an endpoint. Node does not watch a socket that it does not
 * read, so a client that vanishes meanwhile is noticed right after: by the first read, at most the sum
 * of the time limits later (3.75 s by default).
 */
export class TcpConnection implements AttemptOwner, PickRequest, SharedConnection {
  readonly #shared: TcpShared;
  readonly #incoming: Incoming;
  readonly #owner: ServicePort;
  readonly #inward: Direction;
  readonly #outward: Direction;
  readonly traffic: Traffic;
  readonly family: Family;
  #remote: HandleAddress | undefined;
  #attempts = 0;
  #tried = NONE;
  /** The part of `tried` that will not be tried again. */
  #refused = NONE;
  #state: State = ENDED;
  #indexed: IndexEntry | undefined;
  #grace: Deadline<SharedConnection> | undefined;

  constructor(shared: TcpShared, incoming: Incoming, origin: Origin) {
    this.#shared = shared;
    this.#incoming = incoming;
    this.#owner = origin.owner;
    this.traffic = origin.traffic;
    this.family = origin.family;
    const { counters } = origin.owner;
    this.#inward = new Direction(shared.memory, (bytes) => {
      counters.bytesIn += bytes;
    });
    this.#outward = new Direction(shared.memory, (bytes) => {
      counters.bytesOut += bytes;
    });
  }

  /** The client's address, asked for only when somebody needs it: it costs a system call. */
  get client(): string {
    return clientAddress(this.#remoteAddress());
  }

  get tried(): readonly BalancerEndpoint[] {
    return this.#tried;
  }

  /** Makes the first attempt. */
  start(): void {
    const pick = this.#owner.balancer.pick(this);
    if (pick === undefined) this.#reject('no-endpoint');
    else this.#attempt(pick);
  }

  connected(attempt: Attempt, endpointSocket: Socket, seconds: number): void {
    const { endpoint } = attempt.pick;
    const { counters, balancer } = this.#owner;
    balancer.connected(endpoint);
    observeConnectSeconds(counters, seconds);
    const client = this.#incoming.socket(this.#inward.onread);
    if (client.destroyed) {
      // Only the documented way of accepting can find out this early that the client is gone.
      resetSocket(endpointSocket);
      this.#leave();
      return;
    }
    counters.active += 1;
    const startedAt = this.#shared.clock.now();
    const addresses = this.#relayAddresses(endpoint, endpointSocket);
    const relay = new Relay({
      client,
      endpoint: endpointSocket,
      inward: this.#inward,
      outward: this.#outward,
      halfCloseTimeoutMs: this.#shared.limits.halfCloseTimeoutMs,
      ended: (reason) => this.#relayEnded(reason, startedAt, addresses),
    });
    this.#state = { kind: 'relaying', relay };
    if (relayStarted.hasSubscribers && addresses !== undefined) relayStarted.publish(addresses);
    this.#incoming.start(this.#inward);
  }

  failed(attempt: Attempt, cause: ConnectErrorCause, error: Error): void {
    const { endpoint } = attempt.pick;
    const { counters, balancer, name } = this.#owner;
    this.#indexed?.remove();
    counters.connectErrors[cause] += 1;
    // Being out of descriptors or source ports is not the endpoint's fault.
    if (cause !== 'limit') balancer.connectFailed(endpoint);
    if (connectFailed.hasSubscribers) {
      const message = { servicePort: name, endpoint: endpoint.text, attempt: this.#attempts };
      connectFailed.publish({ ...message, cause, error });
    }
    this.#tried = [...this.#tried, endpoint];
    if (cause !== 'timeout') this.#refused = [...this.#refused, endpoint];
    this.#next(cause === 'limit' ? 'limit' : 'connect-failed');
  }

  /**
   * The endpoint that this connection uses is gone. An attempt moves on to another endpoint; a relay
   * lives on, for a limited time if there is a limit.
   */
  endpointGone(): void {
    if (this.#state.kind === 'connecting') {
      const { attempt } = this.#state;
      attempt.abandon();
      this.#indexed?.remove();
      // It does not count as an attempt: the next one may take as long as this one could have.
      this.#attempts -= 1;
      this.#next('no-endpoint');
    } else if (this.#state.kind === 'relaying') {
      this.#grace = this.#shared.grace?.add(this);
    }
  }

  /** The time after the end of the endpoint is over. */
  graceOver(): void {
    if (this.#state.kind === 'relaying') this.#state.relay.cut('endpoint-gone');
  }

  destroy(): void {
    if (this.#state.kind === 'connecting') {
      const { attempt } = this.#state;
      attempt.abandon();
      this.#incoming.reset();
      this.#leave();
    } else if (this.#state.kind === 'relaying') {
      this.#state.relay.cut('destroyed');
    }
  }

  #attempt(pick: Pick): void {
    const { endpoint } = pick;
    const options = this.#shared.attempts[this.#attempts];
    if (options === undefined) return;
    this.#attempts += 1;
    if (this.#attempts > 1) this.#owner.counters.retries += 1;
    if (endpointPicked.hasSubscribers) {
      endpointPicked.publish({
        servicePort: this.#owner.name,
        sourceAddress: addressText(this.#remoteAddress()),
        endpoint: endpoint.text,
        sticky: pick.sticky,
        endpoints: this.#owner.balancer.size,
        attempt: this.#attempts,
      });
    }
    const attempt = new Attempt(pick, this.#outward.onread, options, this);
    this.#state = { kind: 'connecting', attempt };
    this.#indexed = this.#shared.index.add(endpoint, this);
  }

  /** Makes the next attempt, or gives up. */
  #next(reason: RejectReason): void {
    if (this.#attempts >= this.#shared.attempts.length) {
      this.#reject(reason);
      return;
    }
    const pick = this.#pickAgain();
    if (pick === undefined) this.#reject(reason);
    else this.#attempt(pick);
  }

  /** A balancer that has nothing untried left returns one that was tried. */
  #pickAgain(): Pick | undefined {
    const { balancer } = this.#owner;
    const pick = balancer.pick(this);
    if (pick === undefined || !this.#tried.includes(pick.endpoint)) return pick;
    this.#tried = this.#refused;
    const again = balancer.pick(this);
    return again === undefined || this.#refused.includes(again.endpoint) ? undefined : again;
  }

  #reject(reason: RejectReason): void {
    rejectClient(this.#owner, this.#incoming, reason);
    this.#leave();
  }

  #relayEnded(reason: RelayEnd, startedAt: number, addresses: RelayAddresses | undefined): void {
    const { counters } = this.#owner;
    counters.active -= 1;
    if (reason === 'half-close-timeout') counters.halfCloseTimeouts += 1;
    this.#grace?.remove();
    if (relayEnded.hasSubscribers && addresses !== undefined) {
      relayEnded.publish({
        ...addresses,
        bytesIn: this.#inward.bytes,
        bytesOut: this.#outward.bytes,
        durationMs: this.#shared.clock.now() - startedAt,
        reason,
      });
    }
    this.#leave();
  }

  #leave(): void {
    this.#state = ENDED;
    this.#indexed?.remove();
    this.#shared.gate.leave();
  }

  #remoteAddress(): HandleAddress {
    this.#remote ??= this.#incoming.remote();
    return this.#remote;
  }

  /** Undefined when nobody listens: the addresses cost three system calls. */
  #relayAddresses(endpoint: BalancerEndpoint, socket: Socket): RelayAddresses | undefined {
    if (!relayStarted.hasSubscribers && !relayEnded.hasSubscribers) return undefined;
    return {
      servicePort: this.#owner.name,
      endpoint: endpoint.text,
      inRemoteAddress: addressText(this.#remoteAddress()),
      inLocalAddress: addressText(this.#incoming.local()),
      outLocalAddress: addressText({ address: socket.localAddress, port: socket.localPort }),
      outRemoteAddress: endpoint.text,
    };
  }
}
