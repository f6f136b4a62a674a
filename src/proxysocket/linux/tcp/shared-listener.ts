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
  /** Those that serve an address of the above, too, until one of them closes. */
  readonly #others = new Map<string, AcceptOwner[]>();
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
      for (const key of keys) this.#add(key, owner);
      for (const key of before) if (!keys.includes(key)) this.#remove(key, owner);
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

  /** The last one to come gets the clients. */
  #add(key: string, owner: AcceptOwner): void {
    const current = this.#owners.get(key);
    if (current === owner) return;
    this.#owners.set(key, owner);
    if (current === undefined) return;
    const others = (this.#others.get(key) ?? []).filter((each) => each !== owner);
    this.#others.set(key, [...others, current]);
  }

  #remove(key: string, owner: AcceptOwner): void {
    const others = (this.#others.get(key) ?? []).filter((each) => each !== owner);
    if (this.#owners.get(key) === owner) {
      const next = others.pop();
      if (next === undefined) this.#owners.delete(key);
      else this.#owners.set(key, next);
    }
    if (others.length === 0) this.#others.delete(key);
    else this.#others.set(key, others);
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
