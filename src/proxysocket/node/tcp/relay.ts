import type { Socket } from 'node:net';
import type { RelayEnd, RelayOwner, TcpRelay } from '../../tcp/transport.ts';
import type { Direction } from './direction.ts';

/** The relay of one client; see the relay contract in `tcp/transport.ts`. */
export class NodeRelay implements TcpRelay {
  readonly #client: Socket;
  readonly #inward: Direction;
  readonly #owner: RelayOwner;
  #endpoint: Socket | undefined;
  #outward: Direction | undefined;
  /** Sockets that are not closed yet. */
  #open = 1;
  #isStarted = false;
  #halfClosed = false;
  #reason: RelayEnd | undefined;

  /** Owns the client's socket. Call `use` next. */
  constructor(client: Socket, inward: Direction, owner: RelayOwner) {
    this.#client = client;
    this.#inward = inward;
    this.#owner = owner;
  }

  get bytesIn(): number {
    return this.#inward.bytes;
  }

  get bytesOut(): number {
    return this.#outward?.bytes ?? 0;
  }

  /** Relays to this endpoint, whose socket it now owns. Call `start` next. */
  use(endpoint: Socket, outward: Direction): void {
    this.#open += 1;
    this.#endpoint = endpoint;
    this.#outward = outward;
    this.#inward.to(endpoint, this.#owner.counters, 'bytesIn');
    outward.to(this.#client, this.#owner.counters, 'bytesOut');
  }

  start(header?: Uint8Array): void {
    const client = this.#client;
    if (!this.#isStarted && client.closed) this.#open -= 1;
    this.#isStarted = true;
    if (client.destroyed) {
      this.reset('client-reset');
      return;
    }
    if (header !== undefined) this.#endpoint?.write(header);
    this.#inward.start();
    // The client's FIN arrived before the relay started.
    if (client.readableEnded) this.ended(this.#inward);
  }

  unsent(): number {
    return this.#client.writableLength + (this.#endpoint?.writableLength ?? 0);
  }

  keepAlive(idleMs: number): void {
    this.#endpoint?.setKeepAlive(true, idleMs);
  }

  reset(reason: RelayEnd): void {
    this.#reason ??= reason;
    resetSocket(this.#client);
    if (this.#endpoint !== undefined) resetSocket(this.#endpoint);
  }

  /** The source of a direction has sent its FIN, and everything before it has been read. */
  ended(direction: Direction): void {
    const source = direction === this.#inward ? this.#client : this.#endpoint;
    if (source !== undefined) whenFin(source, () => this.#fin(direction));
  }

  closed(): void {
    this.#open -= 1;
    if (this.#open > 0 || !this.#isStarted) return;
    if (this.#endpoint === undefined && this.#reason === undefined) this.#reason = 'client-reset';
    this.#inward.release();
    this.#outward?.release();
    this.#owner.relayEnded(this.#reason ?? 'closed');
  }

  endpointFailed(endpoint: Socket, error: Error): void {
    if (endpoint !== this.#endpoint) return;
    const inward = this.#inward;
    const isUntouched = !inward.isTouched && this.#outward?.isTouched !== true && !this.#halfClosed;
    if (isUntouched && this.#reason === undefined && !this.#client.destroyed) {
      this.#endpoint = undefined;
      this.#outward?.release();
      inward.pause();
      if (this.#owner.endpointLost(error)) return;
    }
    this.reset('endpoint-reset');
  }

  #fin(direction: Direction): void {
    const isLast = this.#halfClosed;
    const other = direction === this.#inward ? this.#outward : this.#inward;
    this.#halfClosed = true;
    direction.end(isLast);
    other?.keepSmall();
    if (!isLast && this.#reason === undefined) this.#owner.halfClosed();
  }
}

const EMPTY = Buffer.alloc(0);

/**
 * Before libuv 1.52 (Node 22 has 1.51), a reset that arrives behind data that was not read yet is
 * reported as the end of the stream. Taken for a FIN, it would make a broken transfer look complete.
 */
export const RESET_MAY_LOOK_LIKE_FIN = olderThan(process.versions.uv ?? '', 1, 52);

/**
 * Calls back when the end of a socket's stream is known to be a FIN.
 *
 * In doubt, it writes nothing to the socket, which makes the kernel report it; a reset then comes as the socket's
 * 'error'. A socket that cannot be written to any more, or still has to write other data, is trusted: for the first
 * it does not matter, the second will find out.
 */
export function whenFin(
  socket: Socket,
  callback: () => void,
  doubtful = RESET_MAY_LOOK_LIKE_FIN,
): void {
  if (!doubtful || !socket.writable || socket.writableLength > 0) {
    callback();
    return;
  }
  socket.write(EMPTY, (error) => {
    if (!(error instanceof Error)) callback();
  });
}

/** Whether a version such as `1.51.0` is older than `major.minor`. */
export function olderThan(version: string, major: number, minor: number): boolean {
  const [a = 0, b = 0] = version.split('.').map(Number);
  return a < major || (a === major && b < minor);
}

/**
 * Ends a socket with a reset (RST) instead of a FIN.
 *
 * `resetAndDestroy` alone is not enough. Between `end()` and 'finish' libuv refuses the reset with EINVAL, and Node
 * then forgets the handle without closing it, so the reset waits for 'finish'. On a connecting socket it would wait
 * for the connection.
 */
export function resetSocket(socket: Socket): void {
  if (socket.destroyed) return;
  if (socket.connecting) {
    socket.destroy();
  } else if (socket.writableEnded && !socket.writableFinished && socket.writableLength === 0) {
    socket.once('finish', () => resetSocket(socket));
  } else {
    socket.resetAndDestroy();
  }
}
