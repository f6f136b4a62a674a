import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { Clock } from '../../../util/clock.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { ListenSpec } from '../../spec.ts';
import type { AcceptOwner, TcpListening, TcpTransport } from '../../tcp/transport.ts';
import type { Loop } from '../loop.ts';
import type { Sockaddr } from '../sys/address.ts';
import { LinuxTcpListening } from './listening.ts';
import { RelayMemory } from './memory.ts';

/** TCP on system calls, in the thread that turns the loop. */
export class LinuxTcpTransport implements TcpTransport {
  readonly loop: Loop;
  readonly clock: Clock;
  readonly memory: RelayMemory;
  readonly backlog: number;
  readonly keepAliveMs: number;
  readonly #sockaddrs = new WeakMap<BalancerEndpoint, Sockaddr>();
  /** Closed for a moment to accept a client that has to be dropped; -1 when there is none. */
  #spare: number;

  constructor(loop: Loop, { limits, clock, descriptors }: EngineContext) {
    this.loop = loop;
    this.clock = clock;
    this.memory = new RelayMemory(loop.sys, limits.bulkBufferBudget, descriptors);
    this.backlog = limits.backlog;
    this.keepAliveMs = limits.keepAliveMs;
    this.#spare = loop.sys.sockets.datagram(4);
  }

  async listen(spec: ListenSpec, owner: AcceptOwner): Promise<TcpListening> {
    return new LinuxTcpListening(this, spec, owner);
  }

  /** Sockets are polled before a timer of the next turn runs. */
  afterSockets(callback: () => void): void {
    this.clock.setTimer(1, callback);
  }

  async destroy(): Promise<void> {
    if (this.#spare >= 0) this.loop.sys.sockets.close(this.#spare);
    this.#spare = -1;
  }

  /** The kernel's form of an endpoint's address. */
  sockaddr(endpoint: BalancerEndpoint): Sockaddr {
    let found = this.#sockaddrs.get(endpoint);
    if (found === undefined) {
      found = this.loop.sys.sockaddr(endpoint);
      this.#sockaddrs.set(endpoint, found);
    }
    return found;
  }

  /**
   * No descriptor is left for a client. It has to be accepted to be dropped, or the listener would be ready for ever;
   * so the spare one is used for that. False: there is not even that one.
   */
  dropClient(listenerFd: number): boolean {
    const { sockets } = this.loop.sys;
    if (this.#spare >= 0) sockets.close(this.#spare);
    const fd = sockets.accept(listenerFd);
    if (fd >= 0) sockets.reset(fd);
    this.#spare = sockets.datagram(4);
    return fd >= 0;
  }
}
