/** UDP sessions of an engine that has handed its listening sockets over. */
import type { Socket } from 'node:dgram';
import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import type { NewProcess } from '../../src/proxysocket/engine.ts';
import { boundSocket } from '../../src/proxysocket/node/udp/session.ts';
import { freePort } from '../support/sockets.ts';
import { TcpRig, udpSpec } from '../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../support/udp-peers.ts';
import { eventually, until } from '../support/until.ts';

/** A client whose request is at the endpoint, and not answered yet. */
async function asked(t: Test, udpIdleTimeoutMs: number) {
  const { engine } = new TcpRig(t, { limits: { udpIdleTimeoutMs } });
  return { engine, ...(await askedOf(t, engine, 'test/dns')) };
}

/** The same of one more service port. */
async function askedOf(t: Test, engine: TcpRig['engine'], name: string) {
  const backend = await UdpBackend.start(t, () => undefined);
  const port = await freePort();
  const spec = udpSpec([backend.spec], { name, listen: [{ port }] });
  await engine.apply([{ kind: 'set', spec }]);
  const client = await UdpClient.open(t);
  client.send('question', port);
  await until(() => backend.received.length === 1);
  return { backend, client, port };
}

function close(engine: TcpRig['engine'], newProcess?: NewProcess) {
  let over = false;
  void engine.close(newProcess).then(() => (over = true));
  return { isOver: () => over };
}

/** A new process that serves every socket. */
const EVERY = { served: { has: () => true } as unknown as ReadonlySet<number> };

/** Binds as a new process does, as soon as no one has the place. It answers whatever it gets. */
async function boundAnew(t: Test, port: number): Promise<void> {
  let socket: Socket | undefined;
  await eventually(async () => {
    try {
      socket = boundSocket(4, '127.0.0.1', port);
      return true;
    } catch {
      return false;
    }
  });
  t.teardown(() => socket?.close());
  socket?.on('message', (_, from) => socket?.send('of the new process', from.port, from.address));
}

const onLinux = { skip: process.platform !== 'linux' && 'only on linux' };

t.test('with a new process, pending answers arrive and nothing new is read', onLinux, async (t) => {
  const { engine, backend, client, port } = await asked(t, 3_000);
  const { isOver } = close(engine, EVERY);
  client.send('for the new process', port);
  backend.send(Buffer.from('answer'), backend.firstPeer);
  await until(() => client.lastReply === 'answer');
  await until(isOver);
  t.equal(client.replies[0]?.from, `127.0.0.1:${port}`);
  t.match(backend.received, [{ message: Buffer.from('question') }]);
  t.equal(backend.received.length, 1);
});

t.test('sessions end without a new process, and those of sockets it does not serve', async (t) => {
  for (const newProcess of [undefined, { served: new Set<number>() }]) {
    const { engine } = await asked(t, 3_600_000);
    await until(close(engine, newProcess).isOver);
  }
});

/** The inode numbers of the UDP sockets at a port. */
function inodesAt(port: number): Set<number> {
  const lines = readFileSync('/proc/net/udp', 'latin1').trim().split('\n');
  const fields = lines.map((line) => line.trim().split(/\s+/));
  const own = fields.filter(([, local = '']) => Number.parseInt(local.slice(-4), 16) === port);
  return new Set(own.map((each) => Number(each[9])));
}

t.test('a socket that the new process lacks closes, for it to bind', onLinux, async (t) => {
  const { engine, port: early } = await asked(t, 3_600_000);
  const { client, port: late } = await askedOf(t, engine, 'test/late');
  const { isOver } = close(engine, { served: inodesAt(early) });
  await boundAnew(t, late);
  t.equal(await client.ask('once more', late), 'of the new process');
  t.notOk(isOver(), 'the session of the socket that the new process has got lives on');
  // Remaining sessions can be ended.
  await engine.destroy();
  await until(isOver);
});
