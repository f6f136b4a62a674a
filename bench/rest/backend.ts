/** An endpoint that sends back what it gets, over TCP and UDP. Settings `{host}`, answer `{tcp, udp}`. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { answer, endWithParent, settings } from '../support/worker.ts';

export interface RestBackendAnswer {
  readonly tcp: number;
  readonly udp: number;
}

const { host } = settings() as { readonly host: string };
const server = createServer((socket) => {
  socket.on('error', () => socket.destroy());
  socket.on('data', (data) => socket.write(data));
});
server.listen({ host, port: 0, backlog: 4096 });
await once(server, 'listening');
const udp = createSocket({ type: 'udp4', recvBufferSize: 1 << 20 });
udp.on('message', (message, { port, address }) => udp.send(message, port, address));
udp.bind(0, host);
await once(udp, 'listening');
endWithParent();
answer({
  tcp: (server.address() as AddressInfo).port,
  udp: udp.address().port,
} satisfies RestBackendAnswer);
