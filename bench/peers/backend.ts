/** The server behind every peer: settings `{host}`, answer `{targets}`. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { answer, endWithParent, settings } from '../support/worker.ts';
import { REQUEST_BYTES, RESPONSE_BYTES, type Target, type Targets } from './targets.ts';

export interface BackendSettings {
  readonly host: string;
}

export interface BackendAnswer {
  readonly targets: Targets;
}

const { host } = settings() as BackendSettings;
const bulk = Buffer.alloc(1024 * 1024);
const response = Buffer.alloc(RESPONSE_BYTES, 'x');

async function listen(onConnection: (socket: Socket) => void): Promise<Target> {
  const server: Server = createServer({ noDelay: true }, (socket) => {
    // A client that cuts its connection ends that connection and nothing else.
    socket.on('error', () => socket.destroy());
    onConnection(socket);
  });
  server.listen({ host, port: 0, backlog: 4096 });
  await once(server, 'listening');
  const bound = server.address();
  return { host, port: bound !== null && typeof bound === 'object' ? bound.port : 0 };
}

function serveSource(socket: Socket): void {
  const fill = (): void => {
    while (!socket.destroyed && socket.write(bulk));
  };
  socket.on('drain', fill);
  socket.resume();
  fill();
}

function serveSink(socket: Socket): void {
  let total = 0;
  socket.on('data', (chunk: Buffer) => {
    total += chunk.length;
  });
  socket.on('end', () => {
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(total));
    socket.end(length);
  });
}

function serveRequests(socket: Socket): void {
  let pending = 0;
  socket.on('data', (chunk: Buffer) => {
    for (pending += chunk.length; pending >= REQUEST_BYTES; pending -= REQUEST_BYTES) {
      socket.write(response);
    }
  });
}

function serveConnections(socket: Socket): void {
  let pending = 0;
  socket.on('data', (chunk: Buffer) => {
    pending += chunk.length;
    if (pending >= REQUEST_BYTES) socket.end(response);
  });
}

async function echo(): Promise<Target> {
  const socket = createSocket({ type: 'udp4', recvBufferSize: 4 << 20, sendBufferSize: 4 << 20 });
  socket.on('message', (message, peer) => socket.send(message, peer.port, peer.address));
  socket.bind(0, host);
  await once(socket, 'listening');
  return { host, port: socket.address().port };
}

const targets: Targets = {
  source: await listen(serveSource),
  sink: await listen(serveSink),
  requests: await listen(serveRequests),
  connections: await listen(serveConnections),
  echo: await echo(),
};
endWithParent();
answer({ targets } satisfies BackendAnswer);
