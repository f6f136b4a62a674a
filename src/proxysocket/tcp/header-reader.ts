import type { Clock } from '../../util/clock.ts';
import { DeadlineQueue, type Deadline } from '../core/timers.ts';
import { parseProxyHeader } from './proxy-protocol.ts';
import type { HeadOwner, KnownAddress, TcpClient } from './transport.ts';

/** For a whole header to arrive. Milliseconds. */
export const HEADER_TIMEOUT_MS = 5000;

/** Called with the outcome, once. */
interface HeaderOwner {
  /** `source`: the client whom the header names; undefined: the sender itself. */
  announced(source: KnownAddress | undefined): void;
  /** No valid header came in time. */
  unannounced(): void;
  /** The client has disconnected. */
  gone(): void;
}

/** Reads the PROXY protocol headers of clients that have to begin with one. */
export class HeaderReader {
  readonly #pending = new Set<PendingHeader>();
  readonly #deadlines: DeadlineQueue<PendingHeader>;

  constructor(clock: Clock, afterSockets: (callback: () => void) => void) {
    const late = (header: PendingHeader): void => header.end('unannounced');
    this.#deadlines = new DeadlineQueue(clock, HEADER_TIMEOUT_MS, late, afterSockets);
  }

  read(client: TcpClient, owner: HeaderOwner): void {
    const header: PendingHeader = new PendingHeader(owner, () => this.#pending.delete(header));
    this.#pending.add(header);
    header.deadline = this.#deadlines.add(header);
    client.readHead(header);
  }

  /** The clients are gone. */
  destroy(): void {
    for (const header of this.#pending) header.end('gone');
  }
}

class PendingHeader implements HeadOwner {
  deadline: Deadline<PendingHeader> | undefined;
  readonly #owner: HeaderOwner;
  readonly #onEnd: () => void;
  #source: KnownAddress | undefined;

  constructor(owner: HeaderOwner, onEnd: () => void) {
    this.#owner = owner;
    this.#onEnd = onEnd;
  }

  head(bytes: Uint8Array): number | undefined {
    const header = parseProxyHeader(bytes);
    if (header === 'invalid') this.end('unannounced');
    if (typeof header === 'string') return undefined;
    this.#source = header.source;
    return header.length;
  }

  headTaken(): void {
    this.end('announced');
  }

  clientGone(): void {
    this.end('gone');
  }

  end(how: keyof HeaderOwner): void {
    if (this.deadline === undefined) return;
    this.deadline.remove();
    this.deadline = undefined;
    this.#onEnd();
    this.#owner[how](this.#source);
  }
}
