/** Bytes that are a function of their stream and position, so that any that is out of place is found. */
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

/** `length` bytes of a stream from a position on. At most 1 MiB. */
export function streamBytes(stream: number, position: number, length: number): Buffer {
  const start = (stream * 7919 + position) % PERIOD;
  return PATTERN.subarray(start, start + length);
}

/**
 * Peers that treat a relay badly, and look at every byte.
 *
 * What each side sends is a function of the connection, the direction and the position, so a byte
 * that is lost, doubled or out of order is found where it is. A peer may stall, end early, or reset;
 * what must hold all the same:
 *
 * - what arrives is a beginning of what was sent;
 * - an end of the stream arrives only behind all of it.
 */

type Random = () => number;

/** What one side does. */
interface Manners {
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

export interface Verdict {
  readonly mistakes: readonly string[];
  readonly bytes: number;
}

function chooseManners(random: Random): Manners {
  const size = random();
  const bytes = Math.floor(size < 0.4 ? random() * 2000 : random() * 2_000_000 * size);
  return {
    bytes,
    resetAfter: random() < 0.15 ? Math.floor(random() * (bytes + 1)) : undefined,
    stallMs: random() * 30,
    stallChance: random() < 0.3 ? random() * 0.2 : 0,
    waitsForEnd: random() < 0.1,
  };
}

/** One side of a connection, at work. Resolves when its socket is closed. */
async function play(
  socket: Socket,
  own: number,
  other: number,
  manners: Manners,
  expected: number,
  random: Random,
): Promise<Verdict> {
  const mistakes: string[] = [];
  let received = 0;
  let ended = false;
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => {
    if (!chunk.equals(streamBytes(other, received, chunk.length))) {
      mistakes.push(`stream ${other}: wrong bytes from ${received} on`);
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
  await send(socket, own, manners, random);
  if (!socket.closed) await firstOf(socket, 'close');
  if (ended && received !== expected) {
    mistakes.push(`stream ${other}: ended after ${received} of ${expected} bytes`);
  }
  if (received > expected) mistakes.push(`stream ${other}: more than ${expected} bytes`);
  return { mistakes, bytes: received };
}

async function send(
  socket: Socket,
  stream: number,
  { bytes, resetAfter }: Manners,
  random: Random,
): Promise<void> {
  const most = Math.min(bytes, resetAfter ?? bytes);
  for (let sent = 0; sent < most && !socket.destroyed;) {
    const wish = random() < 0.3 ? random() * 50 : random() * 200_000;
    const length = Math.min(Math.ceil(wish), most - sent);
    const isTaken = socket.write(streamBytes(stream, sent, length));
    sent += length;
    if (isTaken || socket.destroyed) continue;
    await firstOf(socket, 'drain', 'close');
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

interface Plan {
  readonly client: Manners;
  readonly endpoint: Manners;
  readonly random: Random;
}

/** Clients and an endpoint that know of each other what to expect. */
export class Torture {
  readonly #plans = new Map<number, Plan>();
  readonly #verdicts: Promise<Verdict>[] = [];
  readonly #random: Random;
  #next = 1;

  constructor(seed: number) {
    this.#random = seeded(seed);
  }

  /** Connections begun. */
  get connections(): number {
    return this.#next - 1;
  }

  async endpoint(t: Teardown): Promise<TcpServer> {
    return tcpServer(t, (socket) => {
      socket.once('readable', () => {
        const head = socket.read(4) as Buffer | null;
        const plan = head === null ? undefined : this.#plans.get(head.readUInt32BE());
        if (head === null || plan === undefined) {
          socket.destroy();
          return;
        }
        const id = head.readUInt32BE();
        const { client, endpoint, random } = plan;
        this.#verdicts.push(play(socket, id * 2 + 1, id * 2, endpoint, client.bytes, random));
      });
    });
  }

  /** One connection from beginning to end. */
  async client(port: number, host = '127.0.0.1'): Promise<Verdict> {
    const id = this.#next;
    this.#next += 1;
    const random = seeded(Math.floor(this.#random() * 2 ** 32));
    const plan = { client: chooseManners(random), endpoint: chooseManners(random), random };
    // Both waiting for the other would be a test of patience only.
    const client = { ...plan.client, waitsForEnd: false };
    this.#plans.set(id, { ...plan, client });
    const socket = connect({ port, host, allowHalfOpen: true, noDelay: true });
    socket.on('error', () => undefined);
    await firstOf(socket, 'connect', 'close');
    const head = Buffer.alloc(4);
    head.writeUInt32BE(id);
    socket.write(head);
    const verdict = await play(socket, id * 2, id * 2 + 1, client, plan.endpoint.bytes, random);
    this.#plans.delete(id);
    return verdict;
  }

  /** What the endpoint's sides have seen, when all of them are over. */
  async endpointVerdicts(): Promise<readonly Verdict[]> {
    return Promise.all(this.#verdicts);
  }
}
