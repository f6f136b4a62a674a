import type { ListenSpec } from '../../spec.ts';
import type { AcceptOwner, TcpListening } from '../../tcp/transport.ts';
import type { Pollable } from '../loop.ts';
import { openListener } from '../open-listener.ts';
import * as k from '../sys/constants.ts';
import { systemError } from '../sys/errno.ts';
import { INTEREST } from '../sys/poller.ts';
import { LinuxTcpClient } from './client.ts';
import type { LinuxTcpTransport } from './transport.ts';

/** Connections accepted before other descriptors have their turn. */
const ACCEPTS_AT_ONCE = 64;

/** How long a listener pauses when there is no descriptor even to drop a client. Milliseconds. */
const PAUSE_MS = 100;

/** Errors of a connection that is gone before it was accepted; others wait behind it. */
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

/** A listening socket. */
export class LinuxTcpListening implements TcpListening, Pollable {
  readonly boundPort: number;
  readonly #fd: number;
  readonly #transport: LinuxTcpTransport;
  readonly #owner: AcceptOwner;
  #state: 'listening' | 'paused' | 'closed' = 'paused';

  /** Throws the system's error. */
  constructor(transport: LinuxTcpTransport, spec: ListenSpec, owner: AcceptOwner) {
    this.#transport = transport;
    this.#owner = owner;
    this.#fd = openStream(transport, spec);
    this.boundPort = transport.loop.sys.sockets.localAddress(this.#fd)?.port ?? spec.port;
    const result = this.#watch();
    if (result >= 0) return;
    transport.loop.close(this.#fd);
    throw systemError(-result, 'epoll_ctl');
  }

  ready(): void {
    const { sockets } = this.#transport.loop.sys;
    for (let count = 0; count < ACCEPTS_AT_ONCE && this.#state === 'listening'; count += 1) {
      const fd = sockets.accept(this.#fd);
      if (fd >= 0) this.#owner.accepted(new LinuxTcpClient(this.#transport, fd));
      else if (fd === -k.EAGAIN) return;
      else if (!ONE_CLIENT.has(-fd)) this.#exhausted();
    }
  }

  failed(): void {
    // One client was lost; the next one is accepted as ever.
  }

  async close(): Promise<void> {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    const { loop } = this.#transport;
    // Another process may have the socket, too: then closing a descriptor does not end the watch.
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

/** A socket that listens, with the options that accepted ones inherit. Throws the system's error. */
function openStream({ loop, backlog, keepAliveMs }: LinuxTcpTransport, spec: ListenSpec): number {
  const { sockets } = loop.sys;
  return openListener(loop, 'TCP', spec, {
    prepare(fd, family) {
      sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEADDR, 1);
      // The IPv4 wildcard is a listener of its own.
      if (family === 6) sockets.setOption(fd, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
      sockets.setNoDelay(fd);
      sockets.setKeepAlive(fd, keepAliveMs);
    },
    listen: (fd) => sockets.listen(fd, backlog),
  });
}
