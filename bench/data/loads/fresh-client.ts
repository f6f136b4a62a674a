/**
 * Runs in the client's namespace where wrk is not installed: clients that each connect, ask for a page,
 * wait for its end, and connect again. Prints a `Sample`.
 */
import { connect } from 'node:net';
import { settings } from '../../support/worker.ts';
import { printSample } from './own-sample.ts';

export interface FreshSettings {
  readonly address: string;
  readonly port: number;
  /** At once. */
  readonly clients: number;
  readonly seconds: number;
  /** Processes of the proxy. */
  readonly pids: readonly number[];
}

const { address, port, clients, seconds, pids } = settings() as FreshSettings;
const request = Buffer.from(`GET / HTTP/1.1\r\nHost: ${address}\r\nConnection: close\r\n\r\n`);
const meter = printSample(seconds, pids);

function visit(): void {
  const begin = performance.now();
  const socket = connect({ host: address, port, noDelay: true });
  let length = 0;
  socket.on('data', (data: Buffer) => {
    length += data.length;
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    if (length > 0) meter.done(performance.now() - begin);
    else meter.failed();
    visit();
  });
  socket.write(request);
}

for (let client = 0; client < clients; client += 1) visit();
