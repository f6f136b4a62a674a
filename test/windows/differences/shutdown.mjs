// What was written before a connection is ended arrives, also when the peer has ended its half before.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

const SIZE = 56 * 1024 * 1024;

const server = createServer({ allowHalfOpen: true }, (socket) => {
  socket.resume();
  socket.end(Buffer.alloc(SIZE));
}).listen(0, '127.0.0.1');
await once(server, 'listening');
const client = connect({ port: server.address().port, host: '127.0.0.1', allowHalfOpen: true });
client.end();
await delay(500);
let got = 0;
client.on('data', (chunk) => (got += chunk.length));
await once(client, 'end');
process.stdout.write(
  `${got === SIZE ? 'same' : `differs: ${got} of ${SIZE} bytes came, and then the end`}\n`,
);
process.exit();
