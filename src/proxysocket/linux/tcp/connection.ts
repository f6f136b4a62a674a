import type { BalancerEndpoint, Pick, PickRequest } from '../../../roundrobin/types.ts';
import type { Family } from '../../../util/family.ts';
import {
  observeConnectSeconds,
  rejectReason,
  type ConnectErrorCause,
  type RejectReason,
} from '../../counters.ts';
import { connectFailed } from '../../events.ts';
import type { ConnectionSnapshot } from '../../inspect.ts';
import type { ServicePort } from '../../core/service-port.ts';
import type { Traffic } from '../../spec.ts';
import { addressText, clientAddress } from '../../tcp/addresses.ts';
import { connectErrorCause, loopError } from '../../tcp/connect-error.ts';
import type { Deadline } from '../../core/deadlines.ts';
import type { IndexEntry } from '../../core/endpoint-index.ts';
import { countRejected } from '../../tcp/reject.ts';
import { Tries } from '../../tcp/tries.ts';
import type { HeldClient, Stay } from '../../tcp/waiting-room.ts';
import type { Pollable } from '../loop.ts';
import { ECONNREFUSED, ECONNRESET, EINPROGRESS } from '../sys/constants.ts';
import { systemError } from '../sys/errno.ts';
import { INTEREST, READY } from '../sys/poller.ts';
import { setKeepAlive, setNoDelay } from './options.ts';
import { Relay, type RelayEnd, type RelayOwner } from './relay.ts';
import { isConnectedToItself } from './self-connect.ts';
import type { TcpShared } from './shared.ts';
import { ENDED, type Origin, type State } from './state.ts';
import { relayAddresses, tellEnded, tellPicked, tellStarted, type MaybeAddress } from './tell.ts';

const NO_ADDRESS: MaybeAddress = {};

/**
 * One accepted client, from the first attempt to connect to the end of its relay. The rules are those
 * of the `node` engine.
 *
 * The client's socket is not read before it has an endpoint, so that another one can be tried; a
 * client that leaves meanwhile is noticed right after.
 */
export class Connection implements Pollable, RelayOwner, PickRequest, HeldClient {
  readonly traffic: Traffic;
  readonly family: Family;
  readonly #shared: TcpShared;
  readonly #clientFd: number;
  readonly #owner: ServicePort;
  /** Those that there were when it began. */
  readonly #attempts: TcpShared['attempts'];
  #tries: Tries;
  #heldSince: number | undefined;
  #remote: MaybeAddress | undefined;
  #state: State = ENDED;
  /** There from the first endpoint on that took the connection. */
  #relay: Relay | undefined;
  #indexed: IndexEntry | undefined;
  #grace: Deadline<Connection> | undefined;
  #young: Deadline<Connection> | undefined;
  #isOver = false;

  /** Takes over an accepted socket that has been let in by the gate. */
  constructor(shared: TcpShared, clientFd: number, origin: Origin) {
    this.#shared = shared;
    this.#clientFd = clientFd;
    this.#owner = origin.owner;
    this.traffic = origin.traffic;
    this.family = origin.family;
    this.#attempts = shared.attempts;
    this.#tries = new Tries(this.#attempts.length);
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
    const bytes = isOpen ? state.relay.bytes : undefined;
    return {
      servicePort: this.#owner.name,
      protocol: 'TCP',
      client: this.remoteAddress,
      endpoint: state.endpoint.text,
      state: isOpen ? 'open' : 'connecting',
      ageMs: isOpen ? this.#shared.clock.now() - state.startedAt : 0,
      in: bytes?.in ?? 0,
      out: bytes?.out ?? 0,
    };
  }

  /** Makes the next attempt, or turns the client away for this reason. */
  next(reason: RejectReason): void {
    let why: RejectReason | undefined = reason;
    while (why !== undefined) {
      const pick = this.#tries.next(this.#owner.balancer, this);
      if (pick === undefined) {
        this.#reject(why);
        return;
      }
      why = this.#attempt(pick);
    }
  }

  /** The socket that is being connected has an outcome; or a held client has ended its half, or all. */
  ready(mask: number): void {
    const state = this.#state;
    if (state.kind === 'held') this.#stirred(state.stay, mask);
    if (state.kind !== 'connecting') return;
    const { sockets } = this.#shared.loop.sys;
    const broken = (mask & (READY.error | READY.hangUp)) !== 0;
    const errno = broken ? sockets.takeError(state.fd) : 0;
    if (errno !== 0) {
      this.#giveUp(systemError(Math.abs(errno), 'connect'));
    } else if (isConnectedToItself(this.#shared, state.fd, state.endpoint)) {
      const error = systemError(ECONNREFUSED, 'connect');
      error.message = 'connected to itself: nobody listens there';
      this.#giveUp(error, true);
    } else {
      this.#connected(mask);
    }
  }

  failed(): void {
    this.destroy();
  }

  timedOut(timeoutMs: number): void {
    const error = new Error(`no answer within ${timeoutMs} ms`);
    this.#giveUp(Object.assign(error, { code: 'ETIMEDOUT' }));
  }

  /**
   * The endpoint that this connection uses is gone. An attempt moves on to another endpoint; a relay
   * lives on, for a limited time if there is a limit.
   */
  endpointGone(): void {
    const state = this.#state;
    if (state.kind === 'connecting') {
      this.#abandon();
      this.#tries.withdraw();
      this.next('no-endpoint');
    } else if (state.kind === 'relaying') {
      this.#grace = this.#shared.grace?.add(this);
    }
  }

  /** The time after the end of the endpoint is over. */
  graceOver(): void {
    if (this.#state.kind === 'relaying') this.#state.relay.cut('endpoint-gone');
  }

  /** The relay has lasted long enough to be looked after. */
  keepAlive(): void {
    if (this.#state.kind !== 'relaying') return;
    const { loop, limits } = this.#shared;
    setKeepAlive(loop.sys.sockets, this.#state.endpointFd, limits.keepAliveMs);
  }

  destroy(): void {
    if (this.#state.kind === 'held') this.#state.stay.end('destroyed');
    this.#abandon(true);
    if (this.#relay !== undefined) {
      this.#relay.cut('destroyed');
    } else if (!this.#isOver) {
      this.#shared.loop.reset(this.#clientFd);
      this.#leave();
    }
  }

  /** An endpoint that was silent for longer than an attempt may take had its chance. */
  endpointLost(errno: number): boolean {
    const state = this.#state;
    const attempt = this.#attempts[this.#tries.made - 1];
    if (state.kind !== 'relaying' || attempt === undefined) return false;
    if (this.#shared.clock.now() - state.startedAt > attempt.timeoutMs) return false;
    this.#endRelay('endpoint-reset');
    state.relay.drop();
    const error = systemError(errno === 0 ? ECONNRESET : errno, 'read');
    this.next(this.#attemptFailed(state.endpoint, error, 'reset'));
    return true;
  }

  /** There is an endpoint for a client that has been held. */
  endpointThere(): void {
    if (this.#state.kind !== 'held') return;
    this.#shared.loop.unwatch(this.#clientFd);
    this.next('no-endpoint');
  }

  /** Resets the client, and says why. */
  turnAway(reason: RejectReason): void {
    countRejected(this.#owner, reason, () => this.remoteAddress);
    if (this.#relay !== undefined) {
      this.#relay.cut('endpoint-reset');
    } else {
      this.#shared.loop.reset(this.#clientFd);
      this.#leave();
    }
  }

  relayEnded(reason: RelayEnd): void {
    this.#abandon(true);
    this.#endRelay(reason);
    this.#leave();
  }

  /** Undefined when its outcome is open; else it has failed at once, and this may be why. */
  #attempt(pick: Pick): RejectReason | undefined {
    const { endpoint } = pick;
    const { loop, loops, attempts, index, clock } = this.#shared;
    const { sockets } = loop.sys;
    const attempt = attempts[this.#tries.made - 1];
    if (attempt === undefined) return undefined;
    if (this.#tries.made > 1) this.#owner.counters.retries += 1;
    tellPicked(this.#owner, pick, this.#tries.made, this.#source);
    if (loops.leadsBack(this.#owner, endpoint)) {
      return this.#attemptFailed(endpoint, loopError(this.#owner.name, endpoint.text), 'loop');
    }
    const fd = sockets.stream(endpoint.family);
    if (fd < 0) return this.#attemptFailed(endpoint, systemError(-fd, 'socket'));
    setNoDelay(sockets, fd);
    const result = sockets.connect(fd, this.#shared.sockaddr(endpoint));
    const watched = result === 0 || result === -EINPROGRESS ? loop.watch(fd, this) : result;
    if (watched < 0) {
      loop.close(fd);
      return this.#attemptFailed(endpoint, systemError(-watched, 'connect'));
    }
    this.#state = {
      kind: 'connecting',
      fd,
      endpoint,
      deadline: attempt.running.add(this),
      startedAt: clock.now(),
    };
    this.#indexed = index.add(endpoint, this);
    return undefined;
  }

  /** The running attempt has failed. */
  #giveUp(error: Error, withReset = false): void {
    if (this.#state.kind !== 'connecting') return;
    const { endpoint } = this.#state;
    this.#abandon(withReset);
    this.next(this.#attemptFailed(endpoint, error));
  }

  /** Counts and tells; returns why the client is turned away if nothing else can be tried. */
  #attemptFailed(
    endpoint: BalancerEndpoint,
    error: Error,
    cause: ConnectErrorCause = connectErrorCause(error),
  ): RejectReason {
    const { counters, balancer, name } = this.#owner;
    counters.connectErrors[cause] += 1;
    // Being out of descriptors or source ports is not the endpoint's fault.
    if (cause !== 'limit') balancer.connectFailed(endpoint);
    if (connectFailed.hasSubscribers) {
      const message = { servicePort: name, endpoint: endpoint.text, attempt: this.#tries.made };
      connectFailed.publish({ ...message, cause, error });
    }
    this.#tries.failed(endpoint, cause === 'timeout');
    return cause === 'limit' ? 'limit' : 'connect-failed';
  }

  /** Drops the running attempt. */
  #abandon(withReset = false): void {
    if (this.#state.kind !== 'connecting') return;
    const { fd, deadline } = this.#state;
    this.#state = ENDED;
    deadline.remove();
    this.#indexed?.remove();
    if (withReset) this.#shared.loop.reset(fd);
    else this.#shared.loop.close(fd);
  }

  #connected(mask: number): void {
    if (this.#state.kind !== 'connecting') return;
    const { fd, endpoint, deadline, startedAt } = this.#state;
    const { loop, clock, young } = this.#shared;
    const { counters, balancer } = this.#owner;
    deadline.remove();
    balancer.connected(endpoint);
    const now = clock.now();
    observeConnectSeconds(counters, (now - startedAt) / 1000);
    counters.active += 1;
    const fds = { client: this.#clientFd, endpoint: fd };
    const { sockets } = loop.sys;
    const addresses = relayAddresses(sockets, this.#owner, endpoint, fds, this.#source);
    const isFirst = this.#relay === undefined;
    const relay = this.#relay ?? this.#newRelay();
    this.#relay = relay;
    this.#state = {
      kind: 'relaying',
      relay,
      endpoint,
      endpointFd: fd,
      startedAt: now,
      addresses,
    };
    this.#young = young.add(this);
    tellStarted(addresses);
    const side = relay.use(fd);
    loop.handOver(fd, side);
    // What the client has sent already is told as an event.
    if (isFirst && loop.watch(this.#clientFd, relay.client) < 0) {
      relay.cut('destroyed');
      return;
    }
    side.ready(mask);
    if (!isFirst) relay.client.ready(0);
  }

  #newRelay(): Relay {
    const { loop, memory, halfClosed } = this.#shared;
    const { counters } = this.#owner;
    return new Relay(this.#clientFd, { loop, memory, halfClosed, counters, owner: this });
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
    this.#tries = new Tries(this.#attempts.length);
    this.#heldSince ??= stay.since;
    this.#state = { kind: 'held', stay };
    if (this.#shared.loop.watch(this.#clientFd, this, INTEREST.end) < 0) this.destroy();
  }

  /** A client that has sent something and its FIN may want the answer. */
  #stirred(stay: Stay, mask: number): void {
    const { loop } = this.#shared;
    const isBroken = (mask & (READY.error | READY.hangUp)) !== 0;
    if (!isBroken && loop.sys.sockets.unread(this.#clientFd) > 0) return;
    stay.end('client-gone');
    loop.reset(this.#clientFd);
    this.#leave();
  }

  /** Counts the relay to one endpoint out, unless that has been done. */
  #endRelay(reason: RelayEnd): void {
    const state = this.#state;
    if (state.kind !== 'relaying') return;
    this.#state = ENDED;
    const { counters } = this.#owner;
    counters.active -= 1;
    if (reason === 'half-close-timeout') counters.halfCloseTimeouts += 1;
    this.#grace?.remove();
    this.#young?.remove();
    this.#indexed?.remove();
    const durationMs = this.#shared.clock.now() - state.startedAt;
    tellEnded(state.addresses, state.relay.bytes, durationMs, reason);
  }

  #leave(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#state = ENDED;
    this.#shared.gate.leave();
  }

  #remoteAddress(): MaybeAddress {
    this.#remote ??= this.#shared.loop.sys.sockets.remoteAddress(this.#clientFd) ?? NO_ADDRESS;
    return this.#remote;
  }

  readonly #source = (): MaybeAddress => this.#remoteAddress();
}
