/** Runs in the client's namespace: opens connections, sends one request on each, and keeps them. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { answerRequests } from '../support/dialogue.ts';
import { PORTS } from './ports.ts';

export interface HoldRequest {
  readonly address: string;
  readonly connections: number;
}

/** Being opened at once. */
const AT_ONCE = 50;

answerRequests(async ({ address, connections }: HoldRequest): Promise<number> => {
  for (let opened = 0; opened < connections; opened += AT_ONCE) {
    const batch = Math.min(AT_ONCE, connections - opened);
    await Promise.all(Array.from({ length: batch }, () => hold(address)));
  }
  return connections;
});

async function hold(address: string): Promise<void> {
  const socket = connect({ host: address, port: PORTS.http, timeout: 10_000 });
  socket.on('timeout', () => socket.destroy(new Error(`${address} does not answer`)));
  socket.write(`GET / HTTP/1.1\r\nHost: ${address}\r\n\r\n`);
  await once(socket, 'data');
  socket.setTimeout(0);
  // An interrupt now only makes the figure smaller.
  socket.on('error', () => undefined);
}
