import type { BalancerEndpoint, Pick, PickRequest } from '../../roundrobin/types.ts';
import type { Family } from '../../util/family.ts';
import {
  observeConnectSeconds,
  rejectReason,
  type ConnectErrorCause,
  type RejectReason,
} from '../counters.ts';
import { connectFailed, endpointPicked, relayEnded, relayStarted } from '../events.ts';
import type { RelayAddresses } from '../events.ts';
import type { ConnectionSnapshot } from '../inspect.ts';
import type { ServicePort } from '../core/service-port.ts';
import type { Traffic } from '../spec.ts';
import { addressText, clientAddress } from './addresses.ts';
import { Attempt, type AttemptOwner } from './attempt.ts';
import { Direction } from './direction.ts';
import { loopError } from './connect-error.ts';
import type { Deadline } from '../core/deadlines.ts';
import type { IndexEntry } from '../core/endpoint-index.ts';
import type { HandleAddress } from './handle.ts';
import type { HeldIncoming, Incoming } from './incoming.ts';
import { countRejected, rejectClient } from './reject.ts';
import type { RelaySocket } from './relay-socket.ts';
import { Relay, type RelayEnd, type RelayOwner } from './relay.ts';
import { resetSocket } from './reset.ts';
import type { SharedConnection, TcpShared } from './shared.ts';
import { Tries } from './tries.ts';
import type { HeldClient, Stay } from './waiting-room.ts';

/** Where the client came in. */
export interface Origin {
  readonly owner: ServicePort;
  readonly traffic: Traffic;
  readonly family: Family;
}

type State =
  | { readonly kind: 'held'; readonly stay: Stay; readonly incoming: HeldIncoming }
  | { readonly kind: 'connecting'; readonly attempt: Attempt }
  | {
      readonly kind: 'relaying';
      readonly relay: Relay;
      readonly endpoint: BalancerEndpoint;
      /** On the clock. */
      readonly startedAt: number;
      readonly addresses: RelayAddresses | undefined;
    }
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
 * An attempt has failed, too, when the endpoint resets the connection soon and before a byte went
 * through, either way. That is what becomes of connections that the kernel of an endpoint has taken and
 * the endpoint, which was killed, has not: nobody has seen anything of the client, so another endpoint
 * may serve it. Once the endpoint has been sent something it may have acted on it, and only the client
 * can know whether that may happen twice.
 *
 * The client is not read before it has an endpoint, unless it is held because there is none. Node does
 * not watch a socket that it does not read, so a client that vanishes meanwhile is noticed right after:
 * by the first read, at most the sum of the time limits later (3.75 s by default).
 */
export class TcpConnection
  implements AttemptOwner, RelayOwner, PickRequest, SharedConnection, HeldClient
{
  readonly #shared: TcpShared;
  #incoming: Incoming;
  readonly #owner: ServicePort;
  readonly #inward: Direction;
  readonly #outward: Direction;
  readonly traffic: Traffic;
  readonly family: Family;
  #remote: HandleAddress | undefined;
  /** Those that there were when it began. */
  readonly #attempts: TcpShared['attempts'];
  #tries: Tries;
  #heldSince: number | undefined;
  #state: State = ENDED;
  /** There from the first endpoint on that took the connection. */
  #relay: Relay | undefined;
  #indexed: IndexEntry | undefined;
  #young: Deadline<SharedConnection> | undefined;
  #grace: Deadline<SharedConnection> | undefined;

  constructor(shared: TcpShared, incoming: Incoming, origin: Origin) {
    this.#shared = shared;
    this.#incoming = incoming;
    this.#owner = origin.owner;
    this.traffic = origin.traffic;
    this.family = origin.family;
    this.#attempts = shared.attempts;
    this.#tries = new Tries(this.#attempts.length);
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

  get remoteAddress(): string {
    return addressText(this.#remoteAddress());
  }

  get heldSince(): number | undefined {
    return this.#heldSince;
  }

  get tried(): readonly BalancerEndpoint[] {
    return this.#tries.tried;
  }

  get servicePort(): string {
    return this.#owner.name;
  }

  inspect(): ConnectionSnapshot | undefined {
    const state = this.#state;
    if (state.kind === 'ended') return undefined;
    if (state.kind === 'held') return state.stay.inspect();
    const isOpen = state.kind === 'relaying';
    return {
      servicePort: this.#owner.name,
      protocol: 'TCP',
      client: this.remoteAddress,
      endpoint: isOpen ? state.endpoint.text : state.attempt.pick.endpoint.text,
      state: isOpen ? 'open' : 'connecting',
      ageMs: isOpen ? this.#shared.clock.now() - state.startedAt : 0,
      in: this.#inward.bytes,
      out: this.#outward.bytes,
    };
  }

  /** Makes the first attempt. */
  start(): void {
    this.#next('no-endpoint');
  }

  connected(attempt: Attempt, endpointSocket: RelaySocket, seconds: number): void {
    const { endpoint } = attempt.pick;
    const { counters, balancer } = this.#owner;
    balancer.connected(endpoint);
    observeConnectSeconds(counters, seconds);
    const relay = this.#relayTo(endpointSocket);
    if (relay === undefined) return;
    counters.active += 1;
    const startedAt = this.#shared.clock.now();
    const addresses = this.#relayAddresses(endpoint, endpointSocket);
    this.#state = { kind: 'relaying', relay, endpoint, startedAt, addresses };
    this.#young = this.#shared.young.add(this);
    if (relayStarted.hasSubscribers && addresses !== undefined) relayStarted.publish(addresses);
  }

  failed({ pick }: Attempt, cause: ConnectErrorCause, error: Error): void {
    this.#endpointFailed(pick.endpoint, cause, error);
  }

  /** An endpoint that was silent for longer than an attempt may take had its chance. */
  endpointLost(error: Error): boolean {
    const state = this.#state;
    const attempt = this.#attempts[this.#tries.made - 1];
    if (state.kind !== 'relaying' || attempt === undefined) return false;
    if (this.#shared.clock.now() - state.startedAt > attempt.timeoutMs) return false;
    this.#endRelay('endpoint-reset');
    this.#endpointFailed(state.endpoint, 'reset', error);
    return true;
  }

  relayEnded(reason: RelayEnd): void {
    if (this.#state.kind === 'connecting') this.#state.attempt.abandon();
    this.#endRelay(reason);
    this.#leave();
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
      this.#tries.withdraw();
      this.#next('no-endpoint');
    } else if (this.#state.kind === 'relaying') {
      this.#grace = this.#shared.grace?.add(this);
    }
  }

  /** It may last long: from now on the endpoint is asked whether it is still there. */
  keepAlive(): void {
    if (this.#state.kind === 'relaying')
      this.#state.relay.keepAlive(this.#shared.limits.keepAliveMs);
  }

  /** The time after the end of the endpoint is over. */
  graceOver(): void {
    if (this.#state.kind === 'relaying') this.#state.relay.cut('endpoint-gone');
  }

  destroy(): void {
    if (this.#state.kind === 'connecting') {
      const { attempt } = this.#state;
      attempt.abandon();
      if (this.#relay !== undefined) this.#relay.cut('destroyed');
      else {
        this.#incoming.reset();
        this.#leave();
      }
    } else if (this.#state.kind === 'relaying') {
      this.#state.relay.cut('destroyed');
    } else if (this.#state.kind === 'held') {
      this.#leaveRoom(this.#state.stay, 'destroyed');
    }
  }

  /** There is an endpoint for a client that has been held. */
  endpointThere(): void {
    if (this.#state.kind !== 'held') return;
    this.#state.incoming.release();
    this.#next('no-endpoint');
  }

  /** Resets the client, and says why. */
  turnAway(reason: RejectReason): void {
    if (this.#relay === undefined) {
      rejectClient(this.#owner, this.#incoming, reason);
      this.#leave();
    } else {
      countRejected(this.#owner, reason, () => this.remoteAddress);
      this.#relay.cut('endpoint-reset');
    }
  }

  #attempt(pick: Pick): void {
    const { endpoint } = pick;
    const options = this.#attempts[this.#tries.made - 1];
    if (options === undefined) return;
    if (this.#tries.made > 1) this.#owner.counters.retries += 1;
    if (endpointPicked.hasSubscribers) {
      endpointPicked.publish({
        servicePort: this.#owner.name,
        sourceAddress: addressText(this.#remoteAddress()),
        endpoint: endpoint.text,
        sticky: pick.sticky,
        endpoints: this.#owner.balancer.size,
        attempt: this.#tries.made,
      });
    }
    if (this.#shared.loops.leadsBack(this.#owner, endpoint)) {
      this.#endpointFailed(endpoint, 'loop', loopError(this.#owner.name, endpoint.text));
      return;
    }
    const how = { onread: this.#outward.onread, calls: this.#incoming.calls };
    const attempt = new Attempt(pick, how, options, this);
    this.#state = { kind: 'connecting', attempt };
    this.#indexed = this.#shared.index.add(endpoint, this);
  }

  /** Makes the next attempt, or gives up. */
  #next(reason: RejectReason): void {
    const pick = this.#tries.next(this.#owner.balancer, this);
    if (pick === undefined) this.#reject(reason);
    else this.#attempt(pick);
  }

  #endpointFailed(endpoint: BalancerEndpoint, cause: ConnectErrorCause, error: Error): void {
    const { counters, balancer, name } = this.#owner;
    this.#indexed?.remove();
    counters.connectErrors[cause] += 1;
    // Being out of descriptors or source ports is not the endpoint's fault.
    if (cause !== 'limit') balancer.connectFailed(endpoint);
    if (connectFailed.hasSubscribers) {
      const message = { servicePort: name, endpoint: endpoint.text, attempt: this.#tries.made };
      connectFailed.publish({ ...message, cause, error });
    }
    this.#tries.failed(endpoint, cause === 'timeout');
    this.#next(cause === 'limit' ? 'limit' : 'connect-failed');
  }

  #reject(why: RejectReason): void {
    const reason = rejectReason(this.#owner, this.traffic, why);
    if (reason !== 'no-endpoint' || this.#relay !== undefined) {
      this.turnAway(reason);
      return;
    }
    const stay = this.#shared.room.enter(this, this.#owner);
    if (typeof stay === 'string') this.turnAway(stay);
    else this.#hold(stay);
  }

  /** What has been tried before does not count when an endpoint comes. */
  #hold(stay: Stay): void {
    const incoming = this.#incoming.hold(this.#inward.onread, () =>
      this.#leaveRoom(stay, 'client-gone'),
    );
    this.#incoming = incoming;
    this.#tries = new Tries(this.#attempts.length);
    this.#heldSince ??= stay.since;
    this.#state = { kind: 'held', stay, incoming };
  }

  #leaveRoom(stay: Stay, reason: 'client-gone' | 'destroyed'): void {
    stay.end(reason);
    this.#incoming.reset();
    this.#leave();
  }

  /** Joins the client to an endpoint; undefined when the client is gone. */
  #relayTo(endpointSocket: RelaySocket): Relay | undefined {
    if (this.#relay !== undefined) {
      this.#relay.use(endpointSocket);
      this.#inward.resume();
      return this.#relay;
    }
    const client = this.#incoming.socket(this.#inward.onread);
    if (client.destroyed) {
      // Only the documented way of accepting can find out this early that the client is gone.
      resetSocket(endpointSocket);
      this.#leave();
      return undefined;
    }
    const parts = {
      client,
      inward: this.#inward,
      outward: this.#outward,
      times: this.#shared,
      owner: this,
    };
    this.#relay = new Relay(parts, endpointSocket);
    this.#incoming.start(this.#inward);
    return this.#relay;
  }

  /** Counts the relay to one endpoint out, unless that has been done. */
  #endRelay(reason: RelayEnd): void {
    if (this.#state.kind !== 'relaying') return;
    const { startedAt, addresses } = this.#state;
    this.#state = ENDED;
    const { counters } = this.#owner;
    counters.active -= 1;
    if (reason === 'half-close-timeout') counters.halfCloseTimeouts += 1;
    this.#young?.remove();
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
  #relayAddresses(endpoint: BalancerEndpoint, socket: RelaySocket): RelayAddresses | undefined {
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
