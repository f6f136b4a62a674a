/** Servers behind a proxy, as a process of their own. Each request is answered with their ports. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { answerRequests, settings } from './dialogue.ts';

export const BACKEND = import.meta.filename;

export interface BackendPorts {
  /** Sends without end. */
  readonly source: number;
  /** Takes what it gets. */
  readonly sink: number;
  /** Answers requests with a short page. */
  readonly http: number;
  /** Sends back what it gets. */
  readonly tcpEcho: number;
  /** UDP: sends each datagram back. */
  readonly echo: number;
}

export interface BackendSettings {
  readonly host: string;
  /** Servers that are wanted; 0: any free port. */
  readonly ports: Partial<BackendPorts>;
}

const bulk = Buffer.alloc(1 << 20);

function fill(socket: Socket): void {
  const write = (): void => {
    while (!socket.destroyed && socket.write(bulk));
  };
  socket.on('drain', write).resume();
  write();
}

const SERVERS: Readonly<Record<Exclude<keyof BackendPorts, 'echo'>, () => Server>> = {
  source: () => createServer(fill),
  sink: () => createServer((socket) => void socket.resume()),
  http: () =>
    createHttpServer({ keepAliveTimeout: 600_000, headersTimeout: 0 }, (_, response) => {
      response.setHeader('Content-Length', '12').end('hello world\n');
    }),
  tcpEcho: () => createServer((socket) => void socket.pipe(socket)),
};

async function listen(name: keyof BackendPorts, host: string, port: number): Promise<number> {
  if (name === 'echo') {
    const echo = createSocket({ type: 'udp4', recvBufferSize: 4 << 20, sendBufferSize: 4 << 20 });
    echo.on('message', (message, peer) => echo.send(message, peer.port, peer.address));
    echo.bind(port, host);
    await once(echo, 'listening');
    return echo.address().port;
  }
  const server = SERVERS[name]();
  // A client that cuts its connection ends that connection and nothing else.
  server.on('connection', (socket) => socket.on('error', () => socket.destroy()));
  server.listen({ host, port, backlog: 4096 });
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

if (import.meta.main) {
  const { host, ports } = settings() as BackendSettings;
  const bound: Record<string, number> = {};
  for (const [name, port] of Object.entries(ports)) {
    bound[name] = await listen(name as keyof BackendPorts, host, port);
  }
  answerRequests(() => bound);
}
