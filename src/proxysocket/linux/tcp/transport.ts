import type { BalancerEndpoint } from '../../../roundrobin/endpoint.ts';
import type { Clock } from '../../../util/clock.ts';
import type { Listening } from '../../core/listener.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { ListenSpec } from '../../spec.ts';
import {
  MAX_HEAD_BYTES,
  type AcceptOwner,
  type DialOwner,
  type HeadOwner,
  type HoldOwner,
  type KnownAddress,
  type RelayOwner,
  type TcpClient,
  type TcpDial,
  type TcpRelay,
  type TcpTransport,
} from '../../tcp/transport.ts';
import type { Loop, Pollable } from '../loop.ts';
import { openListener } from '../open-listener.ts';
import * as k from '../sys/abi.ts';
import { INTEREST } from '../sys/poller.ts';
import { RelayMemory } from './memory.ts';
import { Relay } from './relay.ts';

/** Connections accepted before other descriptors are served. */
const ACCEPTS_AT_ONCE = 64;
/** How long a listener pauses if there is no descriptor even to drop a client. Milliseconds. */
const PAUSE_MS = 100;

/** Errors of a connection that failed before it was accepted; others wait behind it. */
const ONE_CLIENT: ReadonlySet<number> = new Set([
  k.EINTR,
  k.EPERM,
  k.EPROTO,
  k.ECONNABORTED,
  k.ENETDOWN,
  k.ENETUNREACH,
  k.EHOSTDOWN,
  k.EHOSTUNREACH,
]);

const UNKNOWN: KnownAddress = {};
const BROKEN = k.EPOLLERR | k.EPOLLHUP;
const ENDED = BROKEN | k.EPOLLRDHUP;

export class LinuxTcpTransport implements TcpTransport {
  readonly loop: Loop;
  readonly clock: Clock;
  readonly memory: RelayMemory;
  readonly #backlog: number;
  readonly #keepAliveMs: number;
  /** Closed for a moment to accept a client that has to be dropped; -1 when there is none. */
  #spare: number;

  constructor(loop: Loop, { limits, clock, descriptors }: EngineContext) {
    this.loop = loop;
    this.clock = clock;
    this.memory = new RelayMemory(loop.sys, limits.bulkBufferBudget, descriptors);
    this.#backlog = limits.backlog;
    this.#keepAliveMs = limits.keepAliveMs;
    this.#spare = loop.sys.datagram(4);
  }

  async listen(spec: ListenSpec, owner: AcceptOwner): Promise<Listening> {
    const { sys } = this.loop;
    const fd = openListener(this.loop, 'TCP', spec, {
      // Accepted sockets inherit the options.
      prepare: (opened, family) => {
        sys.setOption(opened, k.SOL_SOCKET, k.SO_REUSEADDR, 1);
        // The IPv4 wildcard is a listener of its own.
        if (family === 6) sys.setOption(opened, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
        sys.setNoDelay(opened);
        sys.setKeepAlive(opened, this.#keepAliveMs);
      },
      listen: (opened) => sys.listen(opened, this.#backlog),
    });
    return new ListeningSocket(this, fd, owner);
  }

  async destroy(): Promise<void> {
    if (this.#spare >= 0) this.loop.sys.close(this.#spare);
    this.#spare = -1;
  }

  /** Accepts a client with the spare descriptor and resets it, as the listener would stay readable. False: none. */
  dropClient(listenerFd: number): boolean {
    const { sys } = this.loop;
    if (this.#spare >= 0) sys.close(this.#spare);
    const fd = sys.accept(listenerFd);
    if (fd >= 0) sys.reset(fd);
    this.#spare = sys.datagram(4);
    return fd >= 0;
  }
}

class ListeningSocket implements Listening, Pollable {
  readonly boundPort: number;
  readonly #fd: number;
  readonly #transport: LinuxTcpTransport;
  readonly #owner: AcceptOwner;
  #state: 'listening' | 'paused' | 'closed' = 'paused';

  constructor(transport: LinuxTcpTransport, fd: number, owner: AcceptOwner) {
    this.#transport = transport;
    this.#fd = fd;
    this.#owner = owner;
    this.boundPort = transport.loop.sys.localAddress(fd)?.port ?? 0;
    const result = this.#watch();
    if (result >= 0) return;
    transport.loop.close(fd);
    throw k.systemError(-result, 'epoll_ctl');
  }

  ready(): void {
    const { sys } = this.#transport.loop;
    for (let count = 0; count < ACCEPTS_AT_ONCE && this.#state === 'listening'; count += 1) {
      const fd = sys.accept(this.#fd);
      if (fd >= 0) this.#owner.accepted(new Client(this.#transport, fd));
      else if (fd === -k.EAGAIN) return;
      else if (!ONE_CLIENT.has(-fd)) this.#exhausted();
    }
  }

  /** One client was lost; the listener keeps accepting. */
  failed(): void {}

  async close(): Promise<void> {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    const { loop } = this.#transport;
    // If another process has the socket as well, closing a descriptor does not end the watch.
    loop.unwatch(this.#fd);
    loop.close(this.#fd);
  }

  #watch(): number {
    const result = this.#transport.loop.watch(this.#fd, this, INTEREST.readable);
    if (result >= 0) this.#state = 'listening';
    return result;
  }

  #exhausted(): void {
    this.#owner.acceptFailed();
    if (this.#transport.dropClient(this.#fd)) return;
    this.#state = 'paused';
    this.#transport.loop.unwatch(this.#fd);
    this.#resumeLater();
  }

  #resumeLater(): void {
    this.#transport.clock.setTimer(PAUSE_MS, () => {
      if (this.#state === 'paused' && this.#watch() < 0) this.#resumeLater();
    });
  }
}

class Client implements TcpClient, Pollable {
  readonly fd: number;
  readonly transport: LinuxTcpTransport;
  /** Set from the first endpoint on that took the connection. */
  relay: Relay | undefined;
  #hold: HoldOwner | undefined;
  #head: HeadOwner | undefined;

  constructor(transport: LinuxTcpTransport, fd: number) {
    this.transport = transport;
    this.fd = fd;
  }

  remoteAddress(): KnownAddress {
    return this.transport.loop.sys.remoteAddress(this.fd) ?? UNKNOWN;
  }

  localAddress(): KnownAddress {
    return this.transport.loop.sys.localAddress(this.fd) ?? UNKNOWN;
  }

  reset(): void {
    this.#hold = undefined;
    this.#head = undefined;
    this.transport.loop.reset(this.fd);
  }

  hold(owner: HoldOwner): void {
    this.#hold = owner;
    if (this.transport.loop.watch(this.fd, this, INTEREST.end) < 0) owner.clientGone();
  }

  release(): void {
    this.#hold = undefined;
    this.transport.loop.unwatch(this.fd);
  }

  readHead(owner: HeadOwner): void {
    this.#head = owner;
    if (this.transport.loop.watch(this.fd, this) < 0) this.failed();
  }

  dial(endpoint: BalancerEndpoint, owner: DialOwner, source?: string): TcpDial | Error {
    const { loop } = this.transport;
    const { sys } = loop;
    const fd = sys.stream(endpoint.family);
    if (fd < 0) return k.systemError(-fd, 'socket');
    sys.setNoDelay(fd);
    if (source !== undefined) {
      const bound = sys.bindSource(fd, endpoint.family, source);
      if (bound < 0) {
        loop.close(fd);
        return k.systemError(-bound, 'bind');
      }
    }
    const result = sys.connect(fd, endpoint);
    const dial = new Dial(this, fd, owner);
    const watched = result === 0 || result === -k.EINPROGRESS ? loop.watch(fd, dial) : result;
    if (watched >= 0) return dial;
    loop.close(fd);
    return k.systemError(-watched, 'connect');
  }

  ready(mask: number): void {
    if (this.#head !== undefined) {
      this.#peek(this.#head, mask);
      return;
    }
    const isBroken = (mask & BROKEN) !== 0;
    if (!isBroken && this.transport.loop.sys.unread(this.fd) > 0) return;
    this.failed();
  }

  failed(): void {
    const owner = this.#head ?? this.#hold;
    this.#head = undefined;
    owner?.clientGone();
  }

  /** Peeks at all bytes and removes only the head; the rest is for the relay. */
  #peek(owner: HeadOwner, mask: number): void {
    const { loop, memory } = this.transport;
    const { sys } = loop;
    const count = sys.peek(this.fd, memory.current, MAX_HEAD_BYTES);
    const length = count > 0 ? owner.head(memory.current.bytes.subarray(0, count)) : undefined;
    if (this.#head === undefined) return;
    if (length !== undefined) {
      this.#head = undefined;
      sys.read(this.fd, memory.current, length);
      loop.unwatch(this.fd);
      owner.headTaken();
    } else if (count === 0 || (mask & ENDED) !== 0) this.failed();
  }
}

class Dial implements TcpDial, Pollable {
  readonly #client: Client;
  readonly #fd: number;
  readonly #owner: DialOwner;
  #mask = 0;

  constructor(client: Client, fd: number, owner: DialOwner) {
    this.#client = client;
    this.#fd = fd;
    this.#owner = owner;
  }

  localAddress(): KnownAddress {
    return this.#client.transport.loop.sys.localAddress(this.#fd) ?? UNKNOWN;
  }

  /** With a reset: a self-connected socket would keep the endpoint's port in use. */
  abandon(): void {
    this.#client.transport.loop.reset(this.#fd);
  }

  join(owner: RelayOwner): TcpRelay {
    const client = this.#client;
    const { loop, memory } = client.transport;
    client.relay ??= new Relay(loop, memory, client.fd, owner);
    client.relay.use(this.#fd, this.#mask);
    return client.relay;
  }

  ready(mask: number): void {
    this.#mask = mask;
    const { sys } = this.#client.transport.loop;
    const errno = (mask & BROKEN) === 0 ? 0 : sys.takeError(this.#fd);
    if (errno === 0) this.#owner.dialed();
    else this.#owner.dialFailed(k.systemError(Math.abs(errno), 'connect'));
  }

  failed(): void {
    this.#owner.destroy();
  }
}
