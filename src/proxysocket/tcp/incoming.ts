import type { OnReadOpts, Socket } from 'node:net';
import { resetSocket } from './reset.ts';
import { resetHandle, type HandleAddress, type TcpHandle } from './handle.ts';
import { HandleSocket } from './handle-socket.ts';
import { HeldHandle, HeldSocket } from './held-incoming.ts';
import type { Direction } from './direction.ts';
import type { RelaySocket } from './relay-socket.ts';
import type { StreamCalls } from './stream-calls.ts';

/** A client's connection that was accepted and that nobody reads yet. */
export interface Incoming {
  /** What sockets on handles are made with, where they can be had. */
  readonly calls: StreamCalls | undefined;
  /** Empty when the client is gone already. */
  remote(): HandleAddress;
  local(): HandleAddress;
  /** Ends it with a reset. Not after `socket`. */
  reset(): void;
  /** Turns it into a socket, which does not read before `start`. */
  socket(onread: OnReadOpts): RelaySocket;
  /** Lets a direction read from the socket. */
  start(direction: Direction): void;
  /**
   * Nobody is going to read for a while: `gone` is called when the client leaves meanwhile, also if it ends its
   * half before it has sent anything. A client that has sent something and its FIN may want the answer.
   * `onread` is for `socket`. What is returned is to be used instead of this from then on.
   */
  hold(onread: OnReadOpts, gone: () => void): HeldIncoming;
}

/** A client that was held once. What it has sent meanwhile is not lost. */
export interface HeldIncoming extends Incoming {
  /** Nobody wants to know any more whether the client leaves. */
  release(): void;
}

/** A connection taken before Node made a socket for it. */
export function incomingHandle(handle: TcpHandle, calls: StreamCalls): Incoming {
  return new IncomingHandle(handle, calls);
}

/** A paused socket from a 'connection' event: the documented way. */
export function incomingSocket(socket: Socket): Incoming {
  return new IncomingSocket(socket);
}

class IncomingHandle implements Incoming {
  readonly calls: StreamCalls;
  readonly #handle: TcpHandle;

  constructor(handle: TcpHandle, calls: StreamCalls) {
    this.#handle = handle;
    this.calls = calls;
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
    resetHandle(this.#handle);
  }

  socket(onread: OnReadOpts): RelaySocket {
    return new HandleSocket(this.calls, this.#handle, onread);
  }

  start(direction: Direction): void {
    direction.start();
  }

  hold(onread: OnReadOpts, gone: () => void): HeldIncoming {
    return new HeldHandle(this, this.#handle, this.calls, onread).hold(onread, gone);
  }
}

class IncomingSocket implements Incoming {
  readonly calls = undefined;
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

  socket(): RelaySocket {
    return this.#socket;
  }

  start(direction: Direction): void {
    direction.startFlowing();
  }

  hold(onread: OnReadOpts, gone: () => void): HeldIncoming {
    return new HeldSocket(this, this.#socket).hold(onread, gone);
  }
}

function addressOf(address: string | undefined, port: number | undefined): HandleAddress {
  return address === undefined || port === undefined ? {} : { address, port };
}
