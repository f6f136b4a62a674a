import { hasInherited } from './inherited.ts';
import type { Acceptor, Listener, ServicePort } from './service-port.ts';
import type { ListenSpec } from '../spec.ts';

export interface SurplusOptions {
  readonly acceptor: Acceptor;
  readonly owner: ServicePort;
  readonly listen: ListenSpec;
  /** Takes the descriptors of one more listener; false: there are none. */
  readonly hold: () => boolean;
  /** Gives them back. */
  readonly drop: () => void;
}

/**
 * Adds further sockets at the same address that are open already: the old process may have had more workers, each with a
 * socket of its own. So no client is reset that waits in the queue of one, or that the kernel sends there. The
 * same listener when there is nothing to add.
 */
export async function withSurplus(first: Listener, options: SurplusOptions): Promise<Listener> {
  const { acceptor, owner, hold, drop } = options;
  const { protocol, address, boundPort: port } = first;
  const { group, ...rest } = options.listen;
  const listen = { ...rest, port, ...(group !== undefined && { group: { ...group, missing: 0 } }) };
  const listeners = [first];
  while (hasInherited(protocol, address, port) && hold()) {
    try {
      listeners.push(await acceptor.listen(listen, owner));
    } catch (error) {
      drop();
      await Promise.all(listeners.map((each) => each.close()));
      for (let extra = listeners.length - 1; extra > 0; extra -= 1) drop();
      throw error;
    }
  }
  return listeners.length === 1 ? first : new SeveralListeners(listeners, drop);
}

/** Several sockets at one place. */
class SeveralListeners implements Listener {
  readonly protocol;
  readonly address;
  readonly boundPort;
  readonly family;
  readonly #listeners: readonly Listener[];
  readonly #drop: () => void;
  #closed: Promise<void> | undefined;

  constructor(listeners: readonly Listener[], drop: () => void) {
    const [first] = listeners;
    if (first === undefined) throw new Error('no listener');
    this.protocol = first.protocol;
    this.address = first.address;
    this.boundPort = first.boundPort;
    this.family = first.family;
    this.#listeners = listeners;
    this.#drop = drop;
  }

  assign(...ownership: Parameters<Listener['assign']>): void {
    for (const each of this.#listeners) each.assign(...ownership);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await Promise.all(this.#listeners.map((each) => each.close()));
    // The table counts one.
    for (let extra = this.#listeners.length - 1; extra > 0; extra -= 1) this.#drop();
  }
}
