import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Test } from 'tap';
import { dataPlaneFault } from '../../../src/proxysocket/events.ts';
import { LINUX_THREAD } from '../../../src/proxysocket/linux/engine.ts';
import { NODE_THREAD } from '../../../src/proxysocket/node-worker/thread.ts';
import { ThreadEngine, type ThreadKind } from '../../../src/proxysocket/threads/engine.ts';
import type { EngineLimits } from '../../../src/proxysocket/limits.ts';
import type { Engine } from '../../../src/proxysocket/engine.ts';
import { createLinuxWorkers, createNodeWorkers } from '../../../src/proxysocket/workers/create.ts';
import { SharedEngine } from '../../../src/proxysocket/workers/shared-engine.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { collect, openDescriptors } from '../../support/sockets.ts';
import {
  connectionEnd,
  echoServer,
  endOf,
  namedServer,
  request,
  tcpClient,
} from '../../support/tcp-peers.ts';
import { tcpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

const CLIENTS = Array.from({ length: 24 }, (_, n) => `127.0.3.${n + 1}`);

function portOf(engine: Engine, name = 'test/web:http'): number {
  const [listener] = engine.snapshot(new Set([name]))[0]?.listeners ?? [];
  return listener?.state === 'listening' ? listener.boundPort : 0;
}

/** Two engines with a worker each, together and one by one. */
async function pair(
  t: Test,
  thread: ThreadKind,
): Promise<{ shared: Engine; engines: ThreadEngine[] }> {
  const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };
  const engines = [0, 1].map(() => new ThreadEngine({ ...thread, engines: 2, backoff }));
  for (const engine of engines) {
    await engine.start();
    t.teardown(() => engine.destroy());
  }
  const shared = new SharedEngine(engines, { isSteered: true });
  t.teardown(() => shared.destroy());
  return { shared, engines };
}

/** All that comes on a connection from one of the addresses of this host. */
async function ask(port: number, localAddress: string): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', localAddress });
  socket.end();
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

const connectionsOf = (engine: Engine): number => engine.snapshot()[0]?.counters.connections ?? 0;

for (const [thread, create] of [
  [LINUX_THREAD, createLinuxWorkers],
  [NODE_THREAD, createNodeWorkers],
] as const) {
  const { kind } = thread;
  linuxTest(`${kind}: clients are spread over the workers, and counted together`, async (t) => {
    const { shared, engines } = await pair(t, thread);
    t.ok(engines.every(({ steers }) => steers));
    const server = await namedServer(t, 'there');
    await shared.apply([{ kind: 'set', spec: tcpSpec([server.endpoint]) }]);
    const answers = await Promise.all(CLIENTS.map((client) => ask(portOf(shared), client)));
    t.ok(answers.every((answer) => answer === 'there'));
    await until(() => connectionsOf(shared) === CLIENTS.length);
    const counts = engines.map(connectionsOf);
    t.ok(
      counts.every((count) => count > 0),
      counts.join(),
    );
    t.equal(shared.snapshot().length, 1);
  });

  linuxTest(
    `${kind}: a client with affinity stays with its endpoint, whichever worker it comes to`,
    async (t) => {
      const { shared } = await pair(t, thread);
      const servers = await Promise.all(['a', 'b', 'c', 'd'].map((name) => namedServer(t, name)));
      const spec = tcpSpec(
        servers.map(({ endpoint }) => endpoint),
        { affinity: { kind: 'clientIP', timeoutSeconds: 60 } },
      );
      await shared.apply([{ kind: 'set', spec }]);
      const port = portOf(shared);
      const seen = new Set<string>();
      for (const client of CLIENTS) {
        const answers = await Promise.all([1, 2, 3, 4].map(() => ask(port, client)));
        t.equal(new Set(answers).size, 1, client);
        seen.add(answers[0] ?? '');
      }
      t.equal(seen.size, 4);
    },
  );

  linuxTest(`${kind}: when one worker dies the connections of the others go on`, async (t) => {
    const { shared, engines } = await pair(t, thread);
    const [first, second] = engines;
    if (first === undefined || second === undefined) return;
    await shared.apply([{ kind: 'set', spec: tcpSpec([(await echoServer(t)).endpoint]) }]);
    const port = portOf(shared);
    /** A connection that this engine carries. */
    const carriedBy = async (engine: Engine) => {
      for (const localAddress of CLIENTS) {
        const [before, all] = [connectionsOf(engine), connectionsOf(shared)];
        const socket = connect({ port, host: '127.0.0.1', localAddress });
        socket.write('one');
        await once(socket, 'data');
        await until(() => connectionsOf(shared) > all);
        if (connectionsOf(engine) > before) return { socket, localAddress };
        socket.destroy();
      }
      throw new Error('the kernel leads nobody there');
    };
    const lost = await carriedBy(first);
    const kept = await carriedBy(second);
    const end = endOf(lost.socket);
    const faults = collect(t, dataPlaneFault);
    await first.loseWorker();
    // Node closes what a thread has that is ended from outside; see the test of one that throws.
    t.equal(await end, kind === 'linux' ? 'ECONNRESET' : 'FIN');
    kept.socket.write('two');
    t.match(String((await once(kept.socket, 'data'))[0]), 'two');
    // Nobody is refused while there is no worker: the socket is still there, and whoever waits is served.
    t.equal(await request(t, port, 'x'), 'x');
    const again = connect({ port, host: '127.0.0.1', localAddress: lost.localAddress });
    again.write('three');
    t.equal(String((await once(again, 'data'))[0]), 'three');
    again.destroy();
    kept.socket.destroy();
    t.match(faults, [{ what: 'worker-lost' }]);
    t.equal(portOf(shared), port);
    const before = connectionsOf(first);
    t.equal(await ask(port, lost.localAddress), '');
    await until(() => connectionsOf(first) === before + 1);
    t.pass('the worker that took its place has its place among the sockets');
  });

  linuxTest(`${kind}: UDP clients stay with their worker and their endpoint`, async (t) => {
    const { shared, engines } = await pair(t, thread);
    const backend = await UdpBackend.start(t);
    const spec = tcpSpec([backend.spec], { name: 'test/dns:dns' });
    await shared.apply([{ kind: 'set', spec: { ...spec, protocol: 'UDP' } }]);
    const port = portOf(shared, 'test/dns:dns');
    for (const address of CLIENTS) {
      const client = createSocket('udp4');
      client.bind(0, address);
      await once(client, 'listening');
      for (const text of ['one', 'two']) {
        client.send(text, port, '127.0.0.1');
        t.equal(String((await once(client, 'message'))[0]), text);
      }
      client.close();
    }
    const [{ counters } = { counters: undefined }] = shared.snapshot();
    t.equal(counters?.connections, CLIENTS.length, 'a session for each');
    t.ok(engines.every((engine) => connectionsOf(engine) > 0));
    await backend.close();
  });

  linuxTest(
    `${kind}: a place of another program is an error, even if that one would share`,
    async (t) => {
      const { shared, engines } = await pair(t, thread);
      for (const name of ['test/dns:dns', 'test/later:dns']) {
        const other = createSocket({ type: 'udp4', reusePort: true });
        t.teardown(() => other.close());
        other.bind(0, '127.0.0.1');
        await once(other, 'listening');
        const { port } = other.address();
        const spec = tcpSpec([], { name, listen: [{ port }] });
        await shared.apply([{ kind: 'set', spec: { ...spec, protocol: 'UDP' } }]);
        t.match(shared.snapshot(new Set([name]))[0]?.listeners, [
          { state: 'failed', cause: 'EADDRINUSE' },
        ]);
        // Also when threads have taken the places of others.
        for (const engine of engines) await engine.loseWorker();
      }
    },
  );

  linuxTest(`${kind}: limits are shared by equal parts, and nothing stays open`, async (t) => {
    const before = openDescriptors();
    const limits: Partial<EngineLimits> = { maxConnections: 2 };
    const engine = await create(2, { limits });
    t.equal(engine.kind, kind);
    await engine.apply([{ kind: 'set', spec: tcpSpec([(await echoServer(t)).endpoint]) }]);
    const port = portOf(engine);
    // All of one address come to the same worker, which has one of the two.
    const one = await tcpClient(t, port);
    one.write('x');
    await once(one, 'data');
    t.equal(await connectionEnd(t, port), 'ECONNRESET');
    one.destroy();
    await engine.destroy();
    t.ok(openDescriptors() <= before + 2, 'but what the test has');
  });
}
