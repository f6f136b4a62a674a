/** The admin socket of a process beside others: the new process, dead ones, and one that starts with it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, linkSync, readdirSync, renameSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { callAdmin } from '../../src/admin/client.ts';
import { Sampler } from '../../src/admin/sampler.ts';
import { startSocketServer } from '../../src/admin/socket-server.ts';
import { standardOperations } from '../../src/admin/standard.ts';
import { PER_PART } from '../../src/observe/parts.ts';
import { systemClock } from '../../src/util/clock.ts';
import { plain } from '../../src/util/http-server.ts';
import { AdminScene, type SceneService } from '../support/admin-scene.ts';
import { shortDir } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

const unix = { skip: process.platform === 'win32' ? 'only on linux' : false };

/** Takes the place of the socket, as a new process does. */
async function succeed(t: Test, path: string): Promise<Server> {
  const server = createServer();
  t.teardown(() => server.close());
  const draft = join(dirname(path), 'successor');
  await new Promise<void>((resolve) => {
    server.listen(draft, resolve);
  });
  renameSync(draft, path);
  return server;
}

/** Connects, and goes again. */
function call(path: string): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(path, () => socket.destroy());
    socket.on('error', () => undefined);
    socket.once('close', () => resolve());
  });
}

t.test('answers at its own path, even if clients kept coming until then', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const own = `${path}.${process.pid}`;
  const admin = await new AdminScene([]).serve(t, path);
  const former = `${path}-former`;
  linkSync(path, former);
  await succeed(t, path);

  const leaving = admin.leave(4711);
  while (!existsSync(own)) await Promise.all([call(former), call(former)]);
  await leaving;
  const status = await callAdmin({ socket: own, method: 'GET', operation: 'status' });
  t.match(status, { process: { pid: process.pid, successor: 4711 } });

  await admin.close();
  const left = readdirSync(dirname(path)).sort();
  t.strictSame(left, ['a.sock', 'a.sock-former'], 'only what is of others');
});

t.test('removes only what dead processes left beside it', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const names = ['a.sock.7', 'a.sock~7', 'a.sock.7~7', 'a.sock.old', 'a.sockets', 'a.sock.8'];
  const code = `
    const sockets = ${JSON.stringify(names.map((name) => join(dirname(path), name)))};
    let left = sockets.length;
    for (const place of sockets)
      require('net').createServer().listen(place, () => {
        left -= 1;
        if (left === 0) process.kill(process.pid, 'SIGKILL');
      });`;
  await once(spawn(process.execPath, ['-e', code]), 'close');
  const live = createServer();
  t.teardown(() => live.close());
  renameSync(join(dirname(path), 'a.sock.8'), join(dirname(path), 'dead'));
  await once(live.listen(join(dirname(path), 'a.sock.8')), 'listening');
  t.equal(readdirSync(dirname(path)).length, names.length + 1);

  await new AdminScene([]).serve(t, path);
  const left = ['a.sock', 'a.sock.8', 'a.sock.old', 'a.sockets', 'dead'];
  await until(() => readdirSync(dirname(path)).length === left.length);
  t.strictSame(readdirSync(dirname(path)).sort(), left);
});

t.test('of two processes that start at once, the first keeps the path', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const answer = async () => plain(200, 'mine');
  const onAnswerFailed = (): void => undefined;
  const options = { path, answer, onAnswerFailed, clock: systemClock };
  const started = startSocketServer(options);
  const refused = t.rejects(started, {
    code: 'KPNG_ADMIN_SOCKET',
    message: /an unknown process has it/,
  });
  const first = createServer((socket) => {
    socket.on('error', () => undefined).end('first');
  }).listen(path);
  t.teardown(() => first.close());
  await refused;
  const [said] = (await once(connect(path), 'data')) as [Buffer];
  t.equal(String(said), 'first');
  t.strictSame(readdirSync(dirname(path)), ['a.sock'], 'no draft is left');
});

const MANY = 20 * PER_PART;

function service(number: number): SceneService {
  return {
    name: `d/service-${number}:http`,
    address: `10.96.${number >> 8}.${number & 255}`,
    endpoints: ['10.1.0.1:80'],
  };
}

t.test('no response reads more service ports in one turn than a part has', async (t) => {
  const scene = new AdminScene(Array.from({ length: MANY }, (_, n) => service(n)));
  const { engine } = scene;
  const snapshot = engine.snapshot.bind(engine);
  let inThisTurn = 0;
  let most = 0;
  let turns = 0;
  engine.snapshot = (names) => {
    inThisTurn += names?.size ?? MANY;
    most = Math.max(most, inThisTurn);
    return snapshot(names);
  };
  const sampler = new Sampler({ clock: scene.clock, snapshot: () => [] });
  const operations = standardOperations(scene.subject, sampler);
  let watching = true;
  const turn = (): void => {
    inThisTurn = 0;
    turns += 1;
    if (watching) setImmediate(turn);
  };
  setImmediate(turn);
  t.teardown(() => (watching = false));
  for (const [name, input] of [
    ['status', {}],
    ['services', { limit: '1000', sort: 'active' }],
    ['services', { search: 'service-42' }],
    ['dump', {}],
  ] as const) {
    [most, turns] = [0, 0];
    const result = await operations
      .find((each) => each.name === name)
      ?.run(input, new AbortController().signal);
    let text = '';
    if (name === 'dump') for await (const piece of result as AsyncIterable<string>) text += piece;
    if (name === 'dump') t.equal(JSON.parse(text).services.length, MANY);
    else t.match(result, name === 'status' ? { proxy: { servicePorts: MANY } } : { total: MANY });
    t.ok(most <= 2 * PER_PART, `${name}: ${most} in one turn`);
    t.ok(turns >= MANY / PER_PART, `${name}: ${turns} turns`);
  }
});
