import { once } from 'node:events';
import { randomBytes, createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import t from 'tap';
import {
  echoServer,
  readAll,
  tcpClient,
  digestServer,
  tcpServer,
} from '../../support/tcp-peers.ts';
import { TcpRig } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import { type Teardown, sha256 } from '../../support/sockets.ts';

const MB = 1024 * 1024;

/** Sends everything, with back-pressure, while it reads everything. */
async function exchange(socket: Socket, data: Buffer): Promise<Buffer> {
  const answer = readAll(socket);
  socket.end(data);
  return answer;
}

/** Sends `size` bytes of a repeated block; resolves with their digest. */
async function blast(socket: Socket, size: number): Promise<string> {
  const block = randomBytes(MB);
  const hash = createHash('sha256');
  for (let sent = 0; sent < size; sent += block.length) {
    hash.update(block);
    if (!socket.write(block)) await once(socket, 'drain');
  }
  socket.end();
  return hash.digest('hex');
}

const rigWith = (t: Teardown, limits = {}): TcpRig => new TcpRig(t, { limits });

t.test('24 transfers at once, both ways, arrive byte for byte', async (t) => {
  const rig = rigWith(t);
  const servers = [await echoServer(t), await echoServer(t), await echoServer(t)];
  const port = await rig.serve(servers.map(({ endpoint }) => endpoint));
  let total = 0;
  await Promise.all(
    Array.from({ length: 24 }, async (_, index) => {
      const data = randomBytes(1 + ((index * 700_001) % (3 * MB)));
      total += data.length;
      const answer = await exchange(await tcpClient(t, port), data);
      if (!answer.equals(data)) t.fail(`transfer ${index} differs`);
    }),
  );
  await until(() => rig.counters.active === 0);
  t.match(rig.counters, { connections: 24, bytesIn: total, bytesOut: total, active: 0 });
});

t.test('64 MB from the client: the digest comes back after its FIN', async (t) => {
  const rig = rigWith(t);
  const port = await rig.serve([(await digestServer(t)).endpoint]);
  const socket = await tcpClient(t, port);
  const answer = readAll(socket);
  const digest = await blast(socket, 64 * MB);
  t.equal(String(await answer), digest);
  t.equal(rig.counters.bytesIn, 64 * MB);
});

t.test('a slow reader gets all of a blast that ended long ago', async (t) => {
  const rig = rigWith(t);
  const data = randomBytes(50 * MB);
  const server = await tcpServer(t, (socket) => socket.end(data));
  const port = await rig.serve([server.endpoint]);
  const socket = await tcpClient(t, port);
  const chunks: Buffer[] = [];
  // Reads one chunk in each turn of the loop, and only now and then.
  socket.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    socket.pause();
    setImmediate(() => setImmediate(() => socket.resume()));
  });
  await once(socket, 'end');
  t.equal(sha256(Buffer.concat(chunks)), sha256(data));
});
