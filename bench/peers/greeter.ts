/**
 * An endpoint that says who it is as soon as it has accepted a connection, and keeps a book of what it
 * has accepted that is complete even when it is killed. Settings `{id, address, port, book}`,
 * answer `{}`.
 */
import { once } from 'node:events';
import { openSync, writeSync } from 'node:fs';
import { createServer } from 'node:net';
import { answer, endWithParent, settings } from '../support/worker.ts';
import { ANSWER } from './greeter-answer.ts';

export interface GreeterSettings {
  /** Its greeting. */
  readonly id: string;
  readonly address: string;
  readonly port: number;
  /** File that gets a line with the peer's `ip:port` for each accepted connection. */
  readonly book: string;
}

const { id, address, port, book } = settings() as GreeterSettings;
const file = openSync(book, 'a');

const server = createServer({ noDelay: true }, (socket) => {
  // Before anything else can happen to the connection, and before this process can be gone.
  writeSync(file, `${socket.remoteAddress}:${socket.remotePort}\n`);
  socket.on('error', () => socket.destroy());
  socket.write(`${id}\n`);
  socket.on('data', (bytes: Buffer) => {
    if (bytes.includes('\n')) socket.end(`${ANSWER}\n`);
  });
});
server.listen({ host: address, port, backlog: 512 });
await once(server, 'listening');
endWithParent();
answer({});
