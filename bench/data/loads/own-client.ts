/** Runs in the client's namespace: the clients of own.ts. Counts after a warm-up, and answers with a `Sample`. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { answerRequests, settings } from '../../support/dialogue.ts';
import { cpuUse } from '../../support/process-usage.ts';
import type { Sample } from './load.ts';
import type { OwnSettings } from './own.ts';

/** Before it counts, so that every client has its connection or session. Milliseconds. */
const WARM_UP = 200;
/** Latencies that are kept; later ones are counted only. */
const KEPT = 1 << 20;
/** A datagram that is not back after so long is lost, and sent again. Milliseconds. */
const LOST_AFTER = 250;

const { address, port, seconds, pids, work } = settings() as OwnSettings;
const latencies = new Float64Array(KEPT);
const measured = Promise.withResolvers<Sample>();
let answered = 0;
let total = 0;
let lost = 0;

/** One more was answered. */
function done(begin: number): void {
  if (answered < KEPT) latencies[answered] = performance.now() - begin;
  answered += 1;
  total += 1;
}

/** Begins the warm-up. */
function measure(): void {
  setTimeout(() => {
    [total, answered, lost] = [0, 0, 0];
    const [begin, used] = [performance.now(), cpuUse(pids)];
    setTimeout(() => {
      const cpu = cpuUse(pids, used);
      measured.resolve(sampleOf((performance.now() - begin) / 1000, cpu));
    }, seconds * 1000);
  }, WARM_UP);
}

function sampleOf(elapsed: number, cpu: Sample['cpu']): Sample {
  const sorted = latencies.subarray(0, Math.min(answered, KEPT)).sort();
  const at = (share: number): number =>
    Math.round(1000 * (sorted[Math.floor((sorted.length - 1) * share)] ?? 0));
  const latency = { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) };
  return {
    total,
    rate: total / elapsed,
    cpu,
    ...(answered > 0 && { latency }),
    lost: lost / Math.max(1, total + lost),
  };
}

const REQUEST = Buffer.from(`GET / HTTP/1.1\r\nHost: ${address}\r\n\r\n`);
const LAST_REQUEST = Buffer.from(`GET / HTTP/1.1\r\nHost: ${address}\r\nConnection: close\r\n\r\n`);
const [RETURN, NEWLINE] = [13, 10];

/** When the requests that wait for a connection were due. */
const waiting: number[] = [];
/** Connections that wait for a request. */
let free: Connection[] = [];

class Connection {
  readonly socket: Socket;
  readonly #isPaced: boolean;
  #askedAt = 0;

  constructor(isPaced: boolean) {
    this.#isPaced = isPaced;
    this.socket = connect({
      host: address,
      port,
      noDelay: true,
      onread: { buffer: Buffer.alloc(4096), callback: (length, data) => this.#read(length, data) },
    });
    this.socket.on('error', () => undefined).on('close', () => (lost += 1));
  }

  ask(at: number): void {
    this.#askedAt = at;
    this.socket.write(REQUEST);
  }

  /** The page ends with a newline by itself, lines of the head with a return before it. */
  #read(length: number, data: Uint8Array): boolean {
    if (data[length - 1] !== NEWLINE || data[length - 2] === RETURN) return true;
    done(this.#askedAt);
    const due = this.#isPaced ? waiting.shift() : performance.now();
    if (due === undefined) free.push(this);
    else this.ask(due);
    return true;
  }
}

/**
 * So many requests a second, evenly spread. A request that finds every connection busy waits, and its waiting counts.
 * Known tools either have no fixed rate (wrk) or send on all connections at once (h2load). With 0, the next
 * request of each connection as soon as the last one was answered.
 */
async function requests(clients: number, perSecond: number): Promise<void> {
  free = Array.from({ length: clients }, () => new Connection(perSecond > 0));
  await Promise.all(free.map(({ socket }) => once(socket, 'connect')));
  measure();
  const begin = performance.now();
  if (perSecond === 0) {
    for (const connection of free) connection.ask(begin);
    return;
  }
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

/** Connects, asks for a page, waits for its end, and connects again. */
function visit(): void {
  const begin = performance.now();
  const socket = connect({ host: address, port, noDelay: true });
  let length = 0;
  socket.on('data', (data: Buffer) => (length += data.length));
  socket.on('error', () => undefined);
  socket.on('close', () => {
    if (length > 0) done(begin);
    else lost += 1;
    visit();
  });
  socket.write(LAST_REQUEST);
}

/** Sends a small datagram, and the next one as soon as it has come back. */
async function echo(clients: number, from: readonly string[]): Promise<void> {
  const datagram = Buffer.alloc(64, 'u');
  const send = (client: { readonly socket: UdpSocket; sentAt: number }): void => {
    client.sentAt = performance.now();
    client.socket.send(datagram);
  };
  const open = async (_: unknown, index: number) => {
    const socket = createSocket({ type: 'udp4' });
    const own = from[index % from.length];
    if (own !== undefined) socket.bind(0, own);
    socket.connect(port, address);
    await once(socket, 'connect');
    // A proxy that refuses loses the datagram, nothing else.
    socket.on('error', () => undefined);
    return { socket, sentAt: 0 };
  };
  const all = await Promise.all(Array.from({ length: clients }, open));
  measure();
  for (const client of all) {
    client.socket.on('message', () => {
      done(client.sentAt);
      send(client);
    });
    send(client);
  }
  setInterval(() => {
    const late = performance.now() - LOST_AFTER;
    for (const client of all.filter(({ sentAt }) => sentAt < late)) {
      lost += 1;
      send(client);
    }
  }, LOST_AFTER / 2);
}

function bulk(kind: 'down' | 'up'): void {
  measure();
  const chunk = Buffer.alloc(1 << 20);
  const callback = (length: number): boolean => {
    total += length;
    return true;
  };
  const socket = connect({
    host: address,
    port,
    onread: { buffer: Buffer.alloc(1 << 20), callback },
  });
  const write = (): void => {
    socket.write(chunk, () => {
      total += chunk.length;
      // Not at once: as long as writes are taken in full, nothing else would get a turn.
      setImmediate(write);
    });
  };
  // Two under way, so that the system always has something to send.
  if (kind === 'up') for (let times = 0; times < 2; times += 1) write();
}

answerRequests(() => measured.promise);
if (work.kind === 'requests') await requests(work.clients, work.perSecond);
else if (work.kind === 'echo') await echo(work.clients, work.from ?? []);
else if (work.kind === 'connections') {
  measure();
  for (let client = 0; client < work.clients; client += 1) visit();
} else bulk(work.kind);
