import { placeKey } from '../core/listener-slot.ts';
import type { Protocol } from '../spec.ts';
import * as k from './sys/constants.ts';
import type { DescriptorLedger } from '../core/descriptor-ledger.ts';
import type { Sys } from './sys/sys.ts';

/**
 * Listening sockets that a worker which has died has left open, for the one that takes its place: with
 * the clients that wait in their queues, and with their rank among others at the same place.
 */
export class FormerListeners {
  readonly #sys: Sys;
  readonly #ledger: DescriptorLedger;
  readonly #known: ReadonlySet<string>;
  readonly #places = new Map<string, number>();

  /**
   * Closes everything else that the worker has left open; its connections with a reset. `known`: where it
   * listened, whether that is still open or not.
   */
  constructor(sys: Sys, ledger: DescriptorLedger, known: ReadonlySet<string>) {
    this.#sys = sys;
    this.#known = known;
    this.#ledger = ledger;
    for (const fd of ledger.list()) {
      const place = placeOf(sys, fd);
      if (place === undefined) this.#close(fd, 'reset');
      else if (this.#places.has(place)) this.#close(fd, 'close');
      else this.#places.set(place, fd);
    }
  }

  /** The socket of a place, once; then it is the caller's, and noted in the ledger of the caller. */
  take(protocol: Protocol, address: string, port: number): number | undefined {
    const place = placeKey(protocol, address, port);
    const fd = this.#places.get(place);
    if (fd === undefined) return undefined;
    this.#places.delete(place);
    this.#ledger.closed(fd);
    return this.#sys.sockets.adopt(fd);
  }

  /** Whether the worker listened there: then others may still do, and its successor belongs to them. */
  knew(protocol: Protocol, address: string, port: number): boolean {
    return this.#known.has(placeKey(protocol, address, port));
  }

  /** Closes what nobody has taken. Idempotent. */
  closeRest(): void {
    for (const fd of this.#places.values()) this.#close(fd, 'close');
    this.#places.clear();
  }

  /** A reset is not for what listens: another process may have the same socket, and so would reset its clients. */
  #close(fd: number, how: 'close' | 'reset'): void {
    // First, so that nobody else closes it once more.
    this.#ledger.closed(fd);
    this.#sys.sockets[how](fd);
  }
}

/** Where a socket listens; undefined when it does not. */
function placeOf({ sockets }: Sys, fd: number): string | undefined {
  const local = sockets.localAddress(fd);
  if (local === undefined) return undefined;
  if (sockets.getOption(fd, k.SOL_SOCKET, k.SO_ACCEPTCONN) === 1)
    return placeKey('TCP', local.address, local.port);
  const isDatagram = sockets.getOption(fd, k.SOL_SOCKET, k.SO_TYPE) === k.SOCK_DGRAM;
  return isDatagram && sockets.remoteAddress(fd) === undefined
    ? placeKey('UDP', local.address, local.port)
    : undefined;
}
