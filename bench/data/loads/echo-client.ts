/**
 * Runs in the client's namespace: UDP clients that each send a small datagram, and the next one as soon
 * as it has come back. Prints a `Sample` as one line of JSON.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { answer, settings } from '../../support/worker.ts';
import { cpuUse, since } from '../usage.ts';
import type { Sample } from './load.ts';

export interface EchoSettings {
  readonly address: string;
  readonly port: number;
  readonly clients: number;
  readonly seconds: number;
  /** Processes of the proxy. */
  readonly pids: readonly number[];
}

const BYTES = 64;
/** A datagram that is not back after so long is lost, and sent again. Milliseconds. */
const LOST_AFTER = 250;
/** Latencies that are kept: one of each ten. */
const EVERY = 10;
/** Round trips before it counts, so that every client has its session. Milliseconds. */
const WARM_UP = 200;

const { address, port, clients, seconds, pids } = settings() as EchoSettings;
const datagram = Buffer.alloc(BYTES, 'u');
let total = 0;
let lost = 0;
let latencies: number[] = [];

interface Client {
  readonly socket: Socket;
  sentAt: number;
}

function send(client: Client): void {
  client.sentAt = performance.now();
  client.socket.send(datagram);
}

async function open(): Promise<Client> {
  const socket = createSocket({ type: 'udp4' });
  socket.connect(port, address);
  await once(socket, 'connect');
  const client = { socket, sentAt: 0 };
  socket.on('message', () => {
    total += 1;
    if (total % EVERY === 0) latencies.push(performance.now() - client.sentAt);
    send(client);
  });
  // A proxy that refuses loses the datagram, nothing else.
  socket.on('error', () => undefined);
  return client;
}

const all = await Promise.all(Array.from({ length: clients }, open));
for (const client of all) send(client);
setInterval(() => {
  const late = performance.now() - LOST_AFTER;
  for (const client of all.filter(({ sentAt }) => sentAt < late)) {
    lost += 1;
    send(client);
  }
}, LOST_AFTER / 2);

setTimeout(() => {
  total = 0;
  lost = 0;
  latencies = [];
  const [begin, used] = [performance.now(), cpuUse(pids)];
  setTimeout(() => {
    const cpu = since(used, pids);
    const elapsed = (performance.now() - begin) / 1000;
    const sorted = Float64Array.from(latencies).sort();
    const at = (share: number): number =>
      Math.round(1000 * (sorted[Math.floor((sorted.length - 1) * share)] ?? 0));
    const sample: Sample = {
      total,
      rate: total / elapsed,
      cpu,
      latency: { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) },
      lost: lost / Math.max(1, total + lost),
    };
    answer(sample);
    // The sockets would keep it alive.
    process.stdout.end(() => process.exit(0));
  }, seconds * 1000);
}, WARM_UP);
