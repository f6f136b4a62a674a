/** What is kept for clients that were held, once they have their endpoint. */
import t from 'tap';
import { usedMemory } from '../../support/sockets.ts';
import { echoServer, tcpClient } from '../../support/tcp-peers.ts';
import { TcpRig } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

const CLIENTS = 200;
const SENT = 'b'.repeat(12 * 1024);

t.test('bytes that a client sent while held are released afterwards', async (t) => {
  const rig = new TcpRig(t, { limits: { holdTimeoutMs: 3_600_000 } });
  const port = await rig.serve([]);
  const clients = await Promise.all(Array.from({ length: CLIENTS }, () => tcpClient(t, port)));
  const answers = clients.map(() => '');
  const { arrayBuffers: before } = usedMemory();
  for (const [index, client] of clients.entries()) {
    client.on('data', (data) => (answers[index] += String(data)));
    client.write(SENT);
  }
  await until(() => rig.counters.held === CLIENTS);
  await until(() => process.memoryUsage().arrayBuffers >= before + CLIENTS * SENT.length);
  const { arrayBuffers: held } = usedMemory();
  await rig.endpoints([(await echoServer(t)).endpoint]);
  await until(() => answers.every((answer) => answer === SENT));
  for (const client of clients) client.write('after');
  await until(() => answers.every((answer) => answer === `${SENT}after`));
  await until(() => usedMemory().arrayBuffers < held - CLIENTS * 8 * 1024);
});
