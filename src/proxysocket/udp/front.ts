import type { Family } from '../../util/family.ts';
import type { Traffic } from '../spec.ts';
import type { FrontOwner, UdpSession } from './transport.ts';

/**
 * One listening socket and the sessions of its clients. A transport knows how to find those, to read and to close.
 */
export abstract class Front<S extends UdpSession<S>> {
  readonly family: Family;
  protected readonly owner: FrontOwner<S>;
  #state: 'open' | 'left' | 'closed' = 'open';

  constructor(family: Family, owner: FrontOwner<S>) {
    this.family = family;
    this.owner = owner;
  }

  get traffic(): Traffic {
    return this.owner.traffic;
  }

  /** The sessions of this socket. */
  abstract all(): S[];

  /** Takes an ended session out. */
  forget(session: S): void {
    this.remove(session);
    this.#closeWhenLeft();
  }

  /**
   * Reads no more if this is one of the sockets that another process has `served` by now, by inode numbers. It closes
   * when the last session has ended, whose answers still leave from here; `close` does not wait for that.
   */
  leave(served: ReadonlySet<number>): void {
    if (this.#state !== 'open' || !this.stopReading(served)) return;
    this.#state = 'left';
    this.#closeWhenLeft();
  }

  /** Ends the sessions, whose answers have no way out any more, and frees the port. Idempotent. */
  async close(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'closed';
    this.owner.endAll(this.all());
    await this.closeSocket();
  }

  protected abstract remove(session: S): void;

  protected abstract isEmpty(): boolean;

  /** Leaves what comes in to others who have the socket, if it is served; false: it does not. */
  protected abstract stopReading(served: ReadonlySet<number>): boolean;

  protected abstract closeSocket(): Promise<void>;

  #closeWhenLeft(): void {
    if (this.#state !== 'left' || !this.isEmpty()) return;
    this.#state = 'closed';
    void this.closeSocket();
  }
}
