import { LimitSignal } from '../core/limit-signal.ts';

/**
 * The wildcard listeners that may not open a socket for each address of the host. The limit is reached
 * while there is one: as many listeners as there are node ports reach and leave it together.
 */
export class CappedListeners {
  readonly #listeners = new Set<object>();
  readonly #signal: LimitSignal;

  /** `most`: sockets for single addresses that a listener may open. */
  constructor(most: number) {
    this.#signal = new LimitSignal('udp-wildcard-sockets', () => most);
  }

  add(listener: object): void {
    this.#listeners.add(listener);
    this.#signal.refused();
  }

  delete(listener: object): void {
    if (this.#listeners.delete(listener) && this.#listeners.size === 0) this.#signal.left();
  }
}
