import { familyOf, type Family } from '../../../util/family.ts';
import type { Listener, ServicePort } from '../../core/service-port.ts';
import { sourceFilter, type SourceFilter } from '../../core/source-ranges.ts';
import type { ListenSpec, Traffic } from '../../spec.ts';
import type { Loop, Pollable } from '../loop.ts';
import { openListener } from '../open-listener.ts';
import * as k from '../sys/constants.ts';
import { systemError } from '../sys/errno.ts';
import { INTEREST } from '../sys/poller.ts';
import { setKeepAlive, setNoDelay } from './options.ts';

/** Connections accepted before other descriptors have their turn. */
const ACCEPTS_AT_ONCE = 64;

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

export interface TcpListenerOptions {
  readonly backlog: number;
  readonly keepAliveMs: number;
  /** A client has connected; the descriptor is the callee's. */
  readonly accepted: (fd: number, listener: TcpListener) => void;
  /** No descriptor is left for a client, or accepting fails altogether. Returns whether to go on now. */
  readonly exhausted: (listener: TcpListener) => boolean;
  /** The listener does not listen any more. */
  readonly closed: (listener: TcpListener) => void;
}

/** A listening TCP socket. */
export class TcpListener implements Listener, Pollable {
  readonly protocol = 'TCP';
  readonly address: string;
  readonly family: Family;
  readonly boundPort: number;
  readonly fd: number;
  readonly #loop: Loop;
  readonly #options: TcpListenerOptions;
  #owner: ServicePort;
  #traffic: Traffic;
  #filter: SourceFilter | undefined;
  #state: 'listening' | 'paused' | 'closed' = 'listening';

  /** Throws the system's error. */
  constructor(loop: Loop, spec: ListenSpec, owner: ServicePort, options: TcpListenerOptions) {
    this.#loop = loop;
    this.#options = options;
    this.address = spec.address;
    this.family = familyOf(spec.address);
    this.#owner = owner;
    this.#traffic = spec.traffic;
    this.#filter = sourceFilter(owner.name, spec.sourceRanges);
    this.fd = openStream(loop, spec, options);
    this.boundPort = loop.sys.sockets.localAddress(this.fd)?.port ?? spec.port;
  }

  get owner(): ServicePort {
    return this.#owner;
  }

  get traffic(): Traffic {
    return this.#traffic;
  }

  get filter(): SourceFilter | undefined {
    return this.#filter;
  }

  assign(owner: ServicePort, traffic: Traffic, sourceRanges?: readonly string[]): void {
    this.#owner = owner;
    this.#traffic = traffic;
    this.#filter = sourceFilter(owner.name, sourceRanges);
  }

  /** Watches for clients. Throws the system's error. */
  start(): void {
    const result = this.#loop.watch(this.fd, this, INTEREST.readable);
    if (result < 0) throw systemError(-result, 'epoll_ctl');
    this.#state = 'listening';
  }

  /** Leaves clients in the kernel's queue until `start`. */
  pause(): void {
    if (this.#state !== 'listening') return;
    this.#state = 'paused';
    this.#loop.unwatch(this.fd);
  }

  get isPaused(): boolean {
    return this.#state === 'paused';
  }

  ready(): void {
    const { sockets } = this.#loop.sys;
    for (let count = 0; count < ACCEPTS_AT_ONCE; count += 1) {
      const fd = sockets.accept(this.fd);
      if (fd >= 0) {
        this.#options.accepted(fd, this);
      } else if (fd === -k.EAGAIN) {
        return;
      } else if (!ONE_CLIENT.has(-fd) && !this.#options.exhausted(this)) {
        return;
      }
      if (this.#state !== 'listening') return;
    }
  }

  failed(): void {
    // One client was lost; the next one is accepted as ever.
  }

  async close(): Promise<void> {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    // A successor may have the socket, too: then closing a descriptor does not end the watch.
    this.#loop.unwatch(this.fd);
    this.#loop.close(this.fd);
    this.#options.closed(this);
  }
}

/** A socket that listens, with the options that accepted ones inherit. Throws the system's error. */
function openStream(loop: Loop, spec: ListenSpec, options: TcpListenerOptions): number {
  const { sockets } = loop.sys;
  return openListener(loop, 'TCP', spec, {
    prepare(fd, family) {
      sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEADDR, 1);
      // The IPv4 wildcard is a listener of its own.
      if (family === 6) sockets.setOption(fd, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
      setNoDelay(sockets, fd);
      setKeepAlive(sockets, fd, options.keepAliveMs);
    },
    listen: (fd) => sockets.listen(fd, options.backlog),
  });
}
