import type { Clock } from '../../util/clock.ts';
import { IdleLanes, type IdleEntry } from '../core/timers.ts';
import type { EngineLimits } from '../limits.ts';
import type { TcpRelay } from './transport.ts';

/** The half-close time is as long as so many looks. */
const LOOKS = 8;

/** A relay of which one side has sent its FIN. Only `HalfCloseWatchdog` writes these fields. */
export interface HalfClosed extends IdleEntry<HalfClosed> {
  /** Looks in a row that found nothing moved. */
  idleLooks: number;
  /** Bytes passed on, both ways, at the last look. */
  seenBytes: number;
  /** Bytes unsent at the last look; undefined while bytes were passed on. */
  seenUnsent: number | undefined;
  readonly relay: TcpRelay | undefined;
  halfCloseTimeout(): void;
}

/**
 * Ends half-closed relays in which nothing moves any more: looks at intervals whether bytes were passed on, or
 * a slow peer takes what the system has yet to send.
 *
 * Counting looks instead of measuring time leaves out what the event loop was held up for, which no peer can be
 * blamed for. A new limit counts from the next look on.
 */
export class HalfCloseWatchdog {
  readonly #lanes: IdleLanes<HalfClosed>;

  constructor(clock: Clock, limits: Pick<EngineLimits, 'halfCloseTimeoutMs'>) {
    this.#lanes = new IdleLanes<HalfClosed>(
      clock,
      () => limits.halfCloseTimeoutMs / LOOKS,
      (entry) => this.#look(entry),
    );
  }

  add(entry: HalfClosed): void {
    const { relay } = entry;
    if (relay === undefined) return;
    entry.idleLooks = 0;
    entry.seenBytes = relay.bytesIn + relay.bytesOut;
    entry.seenUnsent = undefined;
    this.#lanes.touch(entry);
  }

  remove(entry: HalfClosed): void {
    this.#lanes.remove(entry);
  }

  #look(entry: HalfClosed): void {
    if (entry.relay === undefined || this.#moves(entry, entry.relay)) entry.idleLooks = 0;
    else entry.idleLooks += 1;
    this.#lanes.touch(entry);
    if (entry.idleLooks < LOOKS) return;
    this.#lanes.remove(entry);
    entry.halfCloseTimeout();
  }

  /** Asks for unsent bytes only when no byte was passed on: that costs two system calls. */
  #moves(entry: HalfClosed, relay: TcpRelay): boolean {
    const bytes = relay.bytesIn + relay.bytesOut;
    if (bytes !== entry.seenBytes) {
      entry.seenBytes = bytes;
      entry.seenUnsent = undefined;
      return true;
    }
    const before = entry.seenUnsent;
    entry.seenUnsent = relay.unsent();
    return before !== undefined && entry.seenUnsent < before;
  }
}
