/** Peers that treat a relay badly, and look at every byte. */
import { connect, type Socket } from 'node:net';
import {
  RESET_MAY_LOOK_LIKE_FIN,
  whenFin,
  resetSocket,
} from '../../src/proxysocket/node/tcp/side.ts';
import { seeded } from './balancer.ts';
import type { Teardown } from './sockets.ts';
import { tcpServer, type TcpServer } from './tcp-peers.ts';

/** Long enough for any position to be looked up with one `subarray`. */
const PATTERN_BYTES = 1 << 20;
const PERIOD = 65_521;
const PATTERN = Buffer.alloc(PATTERN_BYTES + PERIOD);
for (let index = 0; index < PATTERN.length; index += 1) {
  PATTERN[index] = Math.imul(index % PERIOD, 2_654_435_761) >>> 24;
}

/** `length` bytes of a stream from a position on, so that any that is out of place is found. At most 1 MiB. */
export function streamBytes(stream: number, position: number, length: number): Buffer {
  const start = (stream * 7919 + position) % PERIOD;
  return PATTERN.subarray(start, start + length);
}

/** What one side does. */
interface Manners {
  readonly stream: number;
  /** Bytes that it would send. */
  readonly bytes: number;
  /** It resets after so many bytes sent; undefined: it does not. */
  readonly resetAfter: number | undefined;
  /** It stops reading for so long, so often. Milliseconds. */
  readonly stallMs: number;
  readonly stallChance: number;
  /** It sends before it reads, or waits with its own data until the other side has ended. */
  readonly waitsForEnd: boolean;
}

type Random = () => number;

/** Mixed, since consecutive seeds begin with almost the same number. */
function randomOf(stream: number): Random {
  return seeded(Math.imul(stream, 2_654_435_761));
}

function mannersOf(stream: number): Manners {
  const random = randomOf(stream);
  const size = random();
  const bytes = Math.floor(size < 0.4 ? random() * 2000 : random() * 2_000_000 * size);
  return {
    stream,
    bytes,
    resetAfter: random() < 0.15 ? Math.floor(random() * (bytes + 1)) : undefined,
    stallMs: random() * 30,
    stallChance: random() < 0.3 ? random() * 0.2 : 0,
    // Both waiting for the other would be a test of patience only.
    waitsForEnd: stream % 2 === 1 && random() < 0.1,
  };
}

async function send(socket: Socket, { stream, bytes, resetAfter }: Manners, random: Random) {
  const most = Math.min(bytes, resetAfter ?? bytes);
  for (let sent = 0; sent < most && !socket.destroyed;) {
    const wish = random() < 0.3 ? random() * 50 : random() * 200_000;
    const length = Math.min(Math.ceil(wish), most - sent);
    const isTaken = socket.write(streamBytes(stream, sent, length));
    sent += length;
    if (!isTaken && !socket.destroyed) await firstOf(socket, 'drain', 'close');
  }
  if (resetAfter !== undefined) resetSocket(socket);
  else socket.end();
}

/** Resolves with the first of these events; an error is not one to reject with here. */
async function firstOf(socket: Socket, ...names: readonly string[]): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  for (const name of names) socket.once(name, resolve);
  await promise;
  for (const name of names) socket.off(name, resolve);
}

/**
 * Clients and an endpoint. The bytes and the manners of each side are a function of the number with which a connection
 * begins. A peer may stall, end early, or reset; what arrives must be a beginning of what was sent all the same, and an
 * end of the stream must arrive only behind all of it.
 */
export class Torture {
  readonly mistakes: string[] = [];
  /** Begun. */
  connections = 0;
  bytes = 0;
  readonly #ofEndpoint: Promise<void>[] = [];
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = seeded(seed);
  }

  async endpoint(t: Teardown): Promise<TcpServer> {
    return tcpServer(t, (socket) => {
      socket.once('readable', () => {
        const head = socket.read(4) as Buffer | null;
        const client = head?.length === 4 ? head.readUInt32BE() : undefined;
        if (client === undefined) socket.destroy();
        else this.#ofEndpoint.push(this.#play(socket, client + 1, client));
      });
    });
  }

  /** One connection from beginning to end. */
  async client(port: number, host = '127.0.0.1'): Promise<void> {
    this.connections += 1;
    const own = Math.floor(this.#random() * 2 ** 31) * 2;
    const socket = connect({ port, host, allowHalfOpen: true, noDelay: true });
    socket.on('error', () => undefined);
    await firstOf(socket, 'connect', 'close');
    const head = Buffer.alloc(4);
    head.writeUInt32BE(own);
    socket.write(head);
    await this.#play(socket, own, own + 1);
  }

  /** Resolves when all sides of the endpoint are over. */
  async over(): Promise<void> {
    await Promise.all(this.#ofEndpoint);
  }

  /** One side of a connection, at work. Resolves when its socket is closed. */
  async #play(socket: Socket, own: number, other: number): Promise<void> {
    const [manners, { bytes: expected }] = [mannersOf(own), mannersOf(other)];
    const random = randomOf(own);
    let received = 0;
    let ended = false;
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => {
      if (!chunk.equals(streamBytes(other, received, chunk.length))) {
        this.mistakes.push(`stream ${other}: wrong bytes from ${received} on`);
        resetSocket(socket);
        return;
      }
      received += chunk.length;
      if (random() >= manners.stallChance) return;
      socket.pause();
      setTimeout(() => socket.resume(), manners.stallMs);
    });
    const end = new Promise<void>((resolve) => {
      socket.once('close', () => resolve());
      socket.once('end', () => {
        // Where a reset may look like an end, and nothing can be written to find out, it proves nothing.
        if (!RESET_MAY_LOOK_LIKE_FIN) ended = true;
        else if (socket.writable) whenFin(socket, () => (ended = true));
        resolve();
      });
    });
    if (manners.waitsForEnd) await end;
    await send(socket, manners, random);
    if (!socket.closed) await firstOf(socket, 'close');
    this.bytes += received;
    if (received > expected || (ended && received < expected))
      this.mistakes.push(`stream ${other}: ended after ${received} of ${expected} bytes`);
  }
}
