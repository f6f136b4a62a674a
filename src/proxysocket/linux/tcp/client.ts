import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type {
  DialOwner,
  HoldOwner,
  KnownAddress,
  RelayOwner,
  TcpClient,
  TcpDial,
  TcpRelay,
} from '../../tcp/transport.ts';
import type { Pollable } from '../loop.ts';
import { EINPROGRESS } from '../sys/constants.ts';
import { systemError } from '../sys/errno.ts';
import { INTEREST, READY } from '../sys/poller.ts';
import { Relay } from './relay.ts';
import type { LinuxTcpTransport } from './transport.ts';

const UNKNOWN: KnownAddress = {};
const BROKEN = READY.error | READY.hangUp;

/** An accepted socket, which is not watched before it is held or relayed. */
export class LinuxTcpClient implements TcpClient, Pollable {
  readonly fd: number;
  readonly transport: LinuxTcpTransport;
  /** Set from the first endpoint on that took the connection. */
  relay: Relay | undefined;
  #hold: HoldOwner | undefined;

  constructor(transport: LinuxTcpTransport, fd: number) {
    this.transport = transport;
    this.fd = fd;
  }

  remoteAddress(): KnownAddress {
    return this.transport.loop.sys.sockets.remoteAddress(this.fd) ?? UNKNOWN;
  }

  localAddress(): KnownAddress {
    return this.transport.loop.sys.sockets.localAddress(this.fd) ?? UNKNOWN;
  }

  reset(): void {
    this.#hold = undefined;
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

  dial(endpoint: BalancerEndpoint, owner: DialOwner): TcpDial | Error {
    const { loop } = this.transport;
    const { sockets } = loop.sys;
    const fd = sockets.stream(endpoint.family);
    if (fd < 0) return systemError(-fd, 'socket');
    sockets.setNoDelay(fd);
    const result = sockets.connect(fd, this.transport.sockaddr(endpoint));
    const dial = new Dial(this, fd, owner);
    const watched = result === 0 || result === -EINPROGRESS ? loop.watch(fd, dial) : result;
    if (watched >= 0) return dial;
    loop.close(fd);
    return systemError(-watched, 'connect');
  }

  /** A held client has ended its half, or all. */
  ready(mask: number): void {
    const isBroken = (mask & BROKEN) !== 0;
    if (!isBroken && this.transport.loop.sys.sockets.unread(this.fd) > 0) return;
    this.#hold?.clientGone();
  }

  failed(): void {
    this.#hold?.clientGone();
  }
}

/** The socket of an endpoint that is being connected. */
class Dial implements TcpDial, Pollable {
  readonly #client: LinuxTcpClient;
  readonly #fd: number;
  readonly #owner: DialOwner;
  /** The events of the socket. */
  #mask = 0;

  constructor(client: LinuxTcpClient, fd: number, owner: DialOwner) {
    this.#client = client;
    this.#fd = fd;
    this.#owner = owner;
  }

  localAddress(): KnownAddress {
    return this.#client.transport.loop.sys.sockets.localAddress(this.#fd) ?? UNKNOWN;
  }

  /** With a reset: a socket that is connected to itself would keep the endpoint's port in use. */
  abandon(): void {
    this.#client.transport.loop.reset(this.#fd);
  }

  join(owner: RelayOwner): TcpRelay {
    const client = this.#client;
    client.relay ??= new Relay(client.transport, client.fd, owner);
    client.relay.use(this.#fd, this.#mask);
    return client.relay;
  }

  ready(mask: number): void {
    this.#mask = mask;
    const { sockets } = this.#client.transport.loop.sys;
    const errno = (mask & BROKEN) === 0 ? 0 : sockets.takeError(this.#fd);
    if (errno === 0) this.#owner.dialed();
    else this.#owner.dialFailed(systemError(Math.abs(errno), 'connect'));
  }

  failed(): void {
    this.#owner.destroy();
  }
}
