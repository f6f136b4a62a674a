/**
 * Runs in the client's namespace: so many requests a second, evenly spread, on connections that are
 * kept. A request that finds every connection busy waits, and its waiting counts. Or, where wrk is not
 * installed, the next request of each connection as soon as the last one was answered. Prints a `Sample`.
 *
 * Known tools either have no fixed rate (wrk) or send on all connections at once (h2load).
 */
import { connect, type Socket } from 'node:net';
import { once } from 'node:events';
import { settings } from '../../support/worker.ts';
import { printSample } from './own-sample.ts';

export interface PacedSettings {
  readonly address: string;
  readonly port: number;
  readonly connections: number;
  /** 0: as fast as the answers come. */
  readonly perSecond: number;
  readonly seconds: number;
  /** Processes of the proxy. */
  readonly pids: readonly number[];
}

const [RETURN, NEWLINE] = [13, 10];

const { address, port, connections, perSecond, seconds, pids } = settings() as PacedSettings;
const request = Buffer.from(`GET / HTTP/1.1\r\nHost: ${address}\r\n\r\n`);
/** When the requests that wait for a connection were due. */
const waiting: number[] = [];

class Connection {
  readonly socket: Socket;
  #askedAt = 0;

  constructor() {
    this.socket = connect({
      host: address,
      port,
      noDelay: true,
      onread: { buffer: Buffer.alloc(4096), callback: (length, data) => this.#read(length, data) },
    });
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => meter.failed());
  }

  ask(at: number): void {
    this.#askedAt = at;
    this.socket.write(request);
  }

  /** The page ends with a newline by itself, lines of the head with a return before it. */
  #read(length: number, data: Uint8Array): boolean {
    if (data[length - 1] !== NEWLINE || data[length - 2] === RETURN) return true;
    const now = performance.now();
    meter.done(now - this.#askedAt);
    const due = perSecond === 0 ? now : waiting.shift();
    if (due === undefined) free.push(this);
    else this.ask(due);
    return true;
  }
}

const free = Array.from({ length: connections }, () => new Connection());
await Promise.all(free.map(({ socket }) => once(socket, 'connect')));

const meter = printSample(seconds, pids);
const begin = performance.now();
if (perSecond === 0) {
  for (const connection of free.splice(0)) connection.ask(begin);
} else {
  let sent = 0;
  setInterval(() => {
    const now = performance.now();
    for (const due = ((now - begin) / 1000) * perSecond; sent < due; sent += 1) {
      const connection = free.shift();
      if (connection === undefined) waiting.push(begin + (sent / perSecond) * 1000);
      else connection.ask(now);
    }
  }, 1);
}
