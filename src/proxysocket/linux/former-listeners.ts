import type { Protocol } from '../spec.ts';
import * as k from './sys/constants.ts';
import type { DescriptorLedger } from './sys/descriptor-ledger.ts';
import type { Sys } from './sys/sys.ts';

/**
 * Listening sockets that a worker which has died has left open, for the one that takes its place: with
 * the clients that wait in their queues, and with their rank among others at the same place.
 */
export class FormerListeners {
  readonly #sys: Sys;
  readonly #ledger: DescriptorLedger;
  readonly #places = new Map<string, number>();

  /** Closes everything else that the worker has left open; its connections with a reset. */
  constructor(sys: Sys, ledger: DescriptorLedger) {
    this.#sys = sys;
    this.#ledger = ledger;
    for (const fd of ledger.list()) {
      const place = placeOf(sys, fd);
      if (place === undefined || this.#places.has(place)) this.#close(fd);
      else this.#places.set(place, fd);
    }
  }

  /** The socket of a place, once; then it is the caller's, and noted in the ledger of the caller. */
  take(protocol: Protocol, address: string, port: number): number | undefined {
    const place = `${protocol} ${address} ${port}`;
    const fd = this.#places.get(place);
    if (fd === undefined) return undefined;
    this.#places.delete(place);
    this.#ledger.closed(fd);
    return this.#sys.sockets.adopt(fd);
  }

  /** Closes what nobody has taken. Idempotent. */
  closeRest(): void {
    for (const fd of this.#places.values()) this.#close(fd);
    this.#places.clear();
  }

  #close(fd: number): void {
    // First, so that nobody else closes it once more.
    this.#ledger.closed(fd);
    this.#sys.sockets.reset(fd);
  }
}

/** Where a socket listens; undefined when it does not. */
function placeOf({ sockets }: Sys, fd: number): string | undefined {
  const local = sockets.localAddress(fd);
  if (local === undefined) return undefined;
  const place = `${local.address} ${local.port}`;
  if (sockets.getOption(fd, k.SOL_SOCKET, k.SO_ACCEPTCONN) === 1) return `TCP ${place}`;
  const isDatagram = sockets.getOption(fd, k.SOL_SOCKET, k.SO_TYPE) === k.SOCK_DGRAM;
  return isDatagram && sockets.remoteAddress(fd) === undefined ? `UDP ${place}` : undefined;
}
