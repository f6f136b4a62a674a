/** Runs in the server's namespace: sends every datagram back. */
import { createSocket } from 'node:dgram';
import { SERVER_ADDRESS } from '../network.ts';
import { PORTS } from '../ports.ts';

const socket = createSocket({ type: 'udp4', recvBufferSize: 4 << 20, sendBufferSize: 4 << 20 });
socket.on('message', (message, { port, address }) => socket.send(message, port, address));
socket.bind(PORTS.echo, SERVER_ADDRESS);
