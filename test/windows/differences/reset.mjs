// A reset is noticed at once, also by a peer to which much was still to be sent and which reads nothing.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

const server = createServer().listen(0, '127.0.0.1');
await once(server, 'listening');
const client = connect(server.address().port, '127.0.0.1');
const [socket] = await once(server, 'connection');
socket.on('error', () => undefined);
client.pause();
socket.write(Buffer.alloc(32 * 1024 * 1024));
await delay(100);
const noticed = once(client, 'error');
socket.resetAndDestroy();
await once(socket, 'close');
// Where it is noticed, writing tells at the latest.
await delay(100);
client.write('x');
const first = await Promise.race([noticed, delay(10_000)]);
if (first === undefined) client.resume();
const [error] = await noticed;
process.stdout.write(
  `${first === undefined ? `differs: ${error.code} after all was read` : 'same'}\n`,
);
process.exit();
