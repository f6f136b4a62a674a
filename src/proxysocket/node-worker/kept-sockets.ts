import type { FormerListeners } from '../linux/former-listeners.ts';
import { openListener, type OpenListenerOptions } from '../linux/open-listener.ts';
import * as k from '../linux/sys/constants.ts';
import { systemError } from '../linux/sys/errno.ts';
import type { Sys } from '../linux/sys/sys.ts';
import type { ListenerSockets, OpenedSocket } from '../core/listener-sockets.ts';
import type { ListenSpec, Protocol } from '../spec.ts';

export interface KeptSocketsOptions {
  /** What a thread has left that was here before. */
  readonly former: FormerListeners | undefined;
  /** Clients that wait at a TCP listener at most. */
  readonly backlog: number;
}

/**
 * The sockets of listeners in a thread that may die.
 *
 * Node closes its handles with the thread that has them. So it gets a second descriptor of each socket, and
 * the first one is noted in the ledger of the thread: the socket stays open, with the clients that wait in it
 * and with its rank among those that share its place, until the next thread takes it from there.
 */
export class KeptSockets implements ListenerSockets {
  readonly descriptors = 2;
  readonly #sys: Sys;
  readonly #options: KeptSocketsOptions;

  constructor(sys: Sys, options: KeptSocketsOptions) {
    this.#sys = sys;
    this.#options = options;
  }

  open(protocol: Protocol, listen: Pick<ListenSpec, 'address' | 'port' | 'group'>): OpenedSocket {
    const { sockets } = this.#sys;
    const { former } = this.#options;
    const kept = openListener({ sys: this.#sys, former }, protocol, listen, this.#how(protocol));
    const fd = sockets.duplicate(kept);
    if (fd < 0) {
      sockets.close(kept);
      throw systemError(-fd, 'fcntl');
    }
    let isOpen = true;
    return {
      fd,
      release() {
        if (isOpen) sockets.close(kept);
        isOpen = false;
      },
    };
  }

  #how(protocol: Protocol): OpenListenerOptions {
    const { sockets } = this.#sys;
    return {
      prepare(fd, family) {
        if (protocol === 'TCP') sockets.setOption(fd, k.SOL_SOCKET, k.SO_REUSEADDR, 1);
        // The IPv4 wildcard is a listener of its own.
        if (family === 6) sockets.setOption(fd, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
      },
      ...(protocol === 'TCP' && {
        listen: (fd: number) => sockets.listen(fd, this.#options.backlog),
      }),
    };
  }
}
