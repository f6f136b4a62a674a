import type { OnReadOpts, Socket } from 'node:net';
import { resetSocket } from './reset.ts';
import { socketOf, type HandleAddress, type TcpHandle } from './handle.ts';
import type { Direction } from './direction.ts';

/** A client's connection that was accepted and that nobody reads yet. */
export interface Incoming {
  /** Empty when the client is gone already. */
  remote(): HandleAddress;
  local(): HandleAddress;
  /** Ends it with a reset. Not after `socket`. */
  reset(): void;
  /** Turns it into a socket, which does not read before `start`. */
  socket(onread: OnReadOpts): Socket;
  /** Lets a direction read from the socket. */
  start(direction: Direction): void;
}

/** A connection taken before Node made a socket for it. */
export function incomingHandle(handle: TcpHandle): Incoming {
  return new IncomingHandle(handle);
}

/** A paused socket from a 'connection' event: the documented way. */
export function incomingSocket(socket: Socket): Incoming {
  return new IncomingSocket(socket);
}

class IncomingHandle implements Incoming {
  readonly #handle: TcpHandle;

  constructor(handle: TcpHandle) {
    this.#handle = handle;
  }

  remote(): HandleAddress {
    const out: HandleAddress = {};
    this.#handle.getpeername(out);
    return out;
  }

  local(): HandleAddress {
    const out: HandleAddress = {};
    this.#handle.getsockname(out);
    return out;
  }

  reset(): void {
    // A connection that cannot be reset any more is dead already and only has to be closed.
    if (this.#handle.reset() !== 0) this.#handle.close();
  }

  socket(onread: OnReadOpts): Socket {
    return socketOf(this.#handle, onread);
  }

  start(direction: Direction): void {
    direction.start();
  }
}

class IncomingSocket implements Incoming {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
    // Until a relay listens, an error only means that the client is gone, as the next read or write
    // will tell.
    socket.on('error', () => undefined);
  }

  remote(): HandleAddress {
    return addressOf(this.#socket.remoteAddress, this.#socket.remotePort);
  }

  local(): HandleAddress {
    return addressOf(this.#socket.localAddress, this.#socket.localPort);
  }

  reset(): void {
    resetSocket(this.#socket);
  }

  socket(): Socket {
    return this.#socket;
  }

  start(direction: Direction): void {
    direction.startFlowing();
  }
}

function addressOf(address: string | undefined, port: number | undefined): HandleAddress {
  return address === undefined || port === undefined ? {} : { address, port };
}
