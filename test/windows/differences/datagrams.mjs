// Two UDP sockets with the same port, one on an address of an interface and one on loopback.
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';

const own = Object.values(networkInterfaces())
  .flat()
  .find(({ family, internal }) => family === 'IPv4' && !internal);

async function bound(address, port) {
  const socket = createSocket('udp4');
  socket.bind({ address, port, exclusive: true });
  await once(socket, 'listening');
  return socket;
}

if (own === undefined) {
  process.stdout.write('same: there is no address to try it with\n');
} else {
  const first = await bound(own.address, 0);
  try {
    (await bound('127.0.0.1', first.address().port)).close();
    process.stdout.write('same\n');
  } catch (error) {
    process.stdout.write(`differs: ${error.code} for 127.0.0.1, with the port of ${own.address}\n`);
  }
  first.close();
}
