/**
 * Runs in the client's namespace: UDP clients that each send a small datagram, and the next one as soon
 * as it has come back. Prints a `Sample`.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { settings } from '../../support/worker.ts';
import { printSample } from './own-sample.ts';

export interface EchoSettings {
  readonly address: string;
  readonly port: number;
  readonly clients: number;
  /** Addresses that they take turns in having; absent: whatever the system gives. */
  readonly from?: readonly string[];
  readonly seconds: number;
  /** Processes of the proxy. */
  readonly pids: readonly number[];
}

const BYTES = 64;
/** A datagram that is not back after so long is lost, and sent again. Milliseconds. */
const LOST_AFTER = 250;

const { address, port, clients, from = [], seconds, pids } = settings() as EchoSettings;
const datagram = Buffer.alloc(BYTES, 'u');

interface Client {
  readonly socket: Socket;
  sentAt: number;
}

function send(client: Client): void {
  client.sentAt = performance.now();
  client.socket.send(datagram);
}

async function open(_: unknown, index: number): Promise<Client> {
  const socket = createSocket({ type: 'udp4' });
  const own = from[index % from.length];
  if (own !== undefined) socket.bind(0, own);
  socket.connect(port, address);
  await once(socket, 'connect');
  // A proxy that refuses loses the datagram, nothing else.
  socket.on('error', () => undefined);
  return { socket, sentAt: 0 };
}

const all = await Promise.all(Array.from({ length: clients }, open));
const meter = printSample(seconds, pids);
for (const client of all) {
  client.socket.on('message', () => {
    meter.done(performance.now() - client.sentAt);
    send(client);
  });
  send(client);
}
setInterval(() => {
  const late = performance.now() - LOST_AFTER;
  for (const client of all.filter(({ sentAt }) => sentAt < late)) {
    meter.failed();
    send(client);
  }
}, LOST_AFTER / 2);
