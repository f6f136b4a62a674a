/** Servers that can be stopped, as pods are. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import type { Spot } from './traffic-main.ts';

const servers = new Set<Server>();
const sockets = new Set<Socket>();
const udpSockets = new Set<UdpSocket>();
let ended = 0;

/** Answers TCP and UDP with a name. */
export async function respond({ address, port }: Spot, name: string): Promise<void> {
  await listen({ address, port }, (socket) => {
    socket.on('data', () => socket.write(name));
  });
  const udp = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  udp.on('error', () => undefined);
  udp.on('message', (_, from) => udp.send(name, from.port, from.address));
  udpSockets.add(udp);
  udp.bind(port, address);
  await once(udp, 'listening');
}

/** Greets every client, and closes when the client does, or never. */
export function greet(spot: Spot, ends: boolean): Promise<void> {
  return listen(spot, (socket) => {
    socket.resume();
    socket.once('end', () => {
      ended += 1;
      if (ends) socket.end();
    });
    socket.write('hello');
  });
}

/** How many clients have ended their connections. */
export function endedByClients(): number {
  return ended;
}

/** Ends everything at once, as when a pod is killed. */
export async function stopServing(): Promise<void> {
  ended = 0;
  for (const socket of sockets) socket.resetAndDestroy();
  for (const udp of udpSockets) udp.close();
  udpSockets.clear();
  await Promise.all(
    [...servers].map(async (server) => {
      const closed = once(server, 'close');
      server.close();
      await closed;
    }),
  );
  servers.clear();
}

async function listen({ address, port }: Spot, serve: (socket: Socket) => void): Promise<void> {
  const server = createServer({ allowHalfOpen: true }, serve);
  own(server);
  server.listen({ host: address, port, backlog: 1024 });
  await once(server, 'listening');
}

/** Has `stopServing` end a server with its connections. */
export function own(server: Server): void {
  servers.add(server);
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => sockets.delete(socket));
  });
}
