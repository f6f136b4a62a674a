import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Lets a server end without cutting anybody who has come before its socket lost its name. */
export class Leaving {
  readonly #server: Server;
  /** Those who have not asked yet, or wait for an answer. */
  readonly #owed = new Set<Socket>();
  /** Those who have been answered, and may ask again. */
  readonly #idle = new Set<Socket>();
  readonly #settled = Promise.withResolvers<void>();
  #accepted = 0;
  #isLeaving = false;

  constructor(server: Server) {
    this.#server = server;
    server.on('connection', (socket) => this.#connected(socket));
    server.prependListener('request', (request, response) => this.#asked(request, response));
  }

  /**
   * Stops listening. Resolves when everybody who had connected has been answered or has gone. Nobody else may be able to
   * connect by now.
   */
  async leave(): Promise<void> {
    this.#isLeaving = true;
    for (const socket of this.#idle) socket.destroy();
    await this.#acceptAll();
    // Not as a server of HTTP does it, which also ends whoever has not asked yet.
    NetServer.prototype.close.call(this.#server);
    if (this.#owed.size > 0) await this.#settled.promise;
  }

  /** Whoever waits in the queue of the socket would be reset when that closes. */
  async #acceptAll(): Promise<void> {
    for (let before = -1; before !== this.#accepted;) {
      before = this.#accepted;
      // Between the two the event loop has looked at the socket.
      await nextTurn();
      await nextTurn();
    }
  }

  #connected(socket: Socket): void {
    this.#accepted += 1;
    this.#owed.add(socket);
    socket.once('close', () => {
      this.#idle.delete(socket);
      this.#paid(socket);
    });
  }

  #asked({ socket }: IncomingMessage, response: ServerResponse): void {
    // Whoever asks again asks the other process.
    if (this.#isLeaving) response.shouldKeepAlive = false;
    this.#idle.delete(socket);
    this.#owed.add(socket);
    response.once('close', () => {
      if (!socket.destroyed) this.#idle.add(socket);
      this.#paid(socket);
    });
  }

  #paid(socket: Socket): void {
    this.#owed.delete(socket);
    if (!this.#isLeaving) return;
    if (this.#idle.has(socket)) socket.end();
    if (this.#owed.size === 0) this.#settled.resolve();
  }
}
