/** The server behind every peer: settings `BackendSettings`, answer `{}`. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { answer, endWithParent, settings } from '../support/worker.ts';
import type { LoopbackPorts } from './peers.ts';

export interface BackendSettings {
  readonly host: string;
  readonly ports: LoopbackPorts;
}

const { host, ports } = settings() as BackendSettings;
const bulk = Buffer.alloc(1024 * 1024);

async function listen(server: Server, port: number): Promise<void> {
  // A client that cuts its connection ends that connection and nothing else.
  server.on('connection', (socket: Socket) => socket.on('error', () => socket.destroy()));
  server.listen({ host, port, backlog: 4096 });
  await once(server, 'listening');
}

/** Sends without end. */
function fill(socket: Socket): void {
  const write = (): void => {
    while (!socket.destroyed && socket.write(bulk));
  };
  socket.on('drain', write).resume();
  write();
}

await listen(createServer(fill), ports.source);
await listen(
  createServer((socket) => void socket.resume()),
  ports.sink,
);
const pages = createHttpServer({ keepAliveTimeout: 600_000 }, (_, response) => {
  response.setHeader('Content-Length', '12').end('hello world\n');
});
await listen(pages, ports.http);
const echo = createSocket({ type: 'udp4', recvBufferSize: 4 << 20, sendBufferSize: 4 << 20 });
echo.on('message', (message, peer) => echo.send(message, peer.port, peer.address));
echo.bind(ports.echo, host);
await once(echo, 'listening');
endWithParent();
answer({});
