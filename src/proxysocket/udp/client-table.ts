/** Where a client sends from: what a listening socket tells its sessions apart by. */
export interface ClientAddress {
  /** IP literal. */
  readonly address: string;
  readonly port: number;
}

/**
 * Values by client address and port. Nested instead of keyed by a joined text, which would have to
 * be built and hashed for every datagram.
 */
export class ClientTable<V extends { readonly client: ClientAddress }> {
  readonly #byAddress = new Map<string, Map<number, V>>();

  get(address: string, port: number): V | undefined {
    return this.#byAddress.get(address)?.get(port);
  }

  add(value: V): void {
    const { address, port } = value.client;
    const ports = this.#byAddress.get(address);
    if (ports === undefined) this.#byAddress.set(address, new Map([[port, value]]));
    else ports.set(port, value);
  }

  delete(value: V): void {
    const { address, port } = value.client;
    const ports = this.#byAddress.get(address);
    if (ports?.get(port) !== value) return;
    ports.delete(port);
    if (ports.size === 0) this.#byAddress.delete(address);
  }

  get isEmpty(): boolean {
    return this.#byAddress.size === 0;
  }

  /** Deleting while iterating is fine. */
  *values(): Generator<V> {
    for (const ports of this.#byAddress.values()) yield* ports.values();
  }
}
