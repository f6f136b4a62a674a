import { isIPv6, SocketAddress } from 'node:net';
import type { PortalAddress } from '../../spec.ts';
import type { AcceptOwner, TcpClient, TcpListening } from '../../tcp/transport.ts';

/**
 * Hands the clients of transparent sockets to the service port of the address that they connected to. Its cost for each
 * client is a system call and a look-up, however many service ports there are.
 */
export class SharedListener implements AcceptOwner {
  readonly #sockets: readonly TcpListening[];
  readonly #onUnused: () => void;
  /** By `address port`; a node port, which is at every address of the host, by `* port`. */
  readonly #owners = new Map<string, AcceptOwner>();
  #uses = 0;

  /** `sockets`: there once they are open. `onUnused` is called when its last service port has gone. */
  constructor(sockets: readonly TcpListening[], onUnused: () => void) {
    this.#sockets = sockets;
    this.#onUnused = onUnused;
  }

  get boundPort(): number {
    return this.#sockets[0]?.boundPort ?? 0;
  }

  /** Serves addresses for a service port, until that is closed. */
  listen(owner: AcceptOwner, addresses: readonly PortalAddress[]): TcpListening {
    let keys: readonly string[] = [];
    const serve = (wanted: readonly PortalAddress[]): void => {
      const before = keys;
      keys = wanted.map((each) => keyOf(each));
      for (const key of keys) this.#owners.set(key, owner);
      // An address may have passed to another service port already.
      for (const key of before) {
        if (this.#owners.get(key) === owner && !keys.includes(key)) this.#owners.delete(key);
      }
    };
    serve(addresses);
    this.#uses += 1;
    let closed: Promise<void> | undefined;
    return {
      boundPort: this.boundPort,
      serve,
      close: () => {
        closed ??= this.#leave(() => serve([]));
        return closed;
      },
    };
  }

  accepted(client: TcpClient): void {
    const { address, port } = client.localAddress();
    const owner = this.#owners.get(`${address} ${port}`) ?? this.#owners.get(`* ${port}`);
    // The service port may have gone since the packet passed the rules.
    if (owner === undefined) client.reset();
    else owner.accepted(client);
  }

  /** Counted for one service port: the kernel does not say whose client was lost. */
  acceptFailed(): void {
    this.#owners.values().next().value?.acceptFailed();
  }

  async #leave(forget: () => void): Promise<void> {
    forget();
    this.#uses -= 1;
    if (this.#uses > 0) return;
    this.#onUnused();
    await Promise.all(this.#sockets.map((socket) => socket.close()));
  }
}

/** In the kernel's spelling. */
function keyOf({ address = '*', port }: PortalAddress): string {
  const text = isIPv6(address) ? new SocketAddress({ address, family: 'ipv6' }).address : address;
  return `${text} ${port}`;
}
