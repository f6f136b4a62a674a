/** The admin socket of a process beside others: the new process, dead ones, and one that starts with it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, linkSync, readdirSync, renameSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import t from 'tap';
import { callAdmin } from '../../src/admin/client.ts';
import { AdminScene } from '../support/admin-scene.ts';
import { shortDir } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

const unix = { skip: process.platform === 'win32' ? 'only on linux' : false };

t.test('answers at its own path, even if clients kept coming until then', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const own = `${path}.${process.pid}`;
  const admin = await new AdminScene([]).serve(t, path);
  const former = `${path}-former`;
  linkSync(path, former);
  // As a new process does.
  const successor = createServer();
  t.teardown(() => successor.close());
  await once(successor.listen(`${path}-draft`), 'listening');
  renameSync(`${path}-draft`, path);

  const leaving = admin.leave(4711);
  while (!existsSync(own)) {
    const client = connect(former, () => client.destroy()).on('error', () => undefined);
    await new Promise((resolve) => client.once('close', resolve));
  }
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

for (const answer of ['first', 'HTTP/1.1 200 OK\r\n\r\nnull']) {
  t.test('of two processes that start at once, the first keeps the path', unix, async (t) => {
    const path = join(shortDir(t), 'a.sock');
    const made = new AdminScene([]);
    const admin = await made.start({ socketPath: path });
    t.teardown(() => admin.close());
    const first = createServer((socket) => {
      socket.on('error', () => undefined).end(answer);
    }).listen(path);
    t.teardown(() => first.close());
    await until(() => made.log.lines.length > 0);
    const err = { code: 'KPNG_ADMIN_SOCKET', message: /an unknown process has it/ };
    t.match(made.log.lines[0]?.keys, { err });
    const [said] = (await once(connect(path), 'data')) as [Buffer];
    t.equal(String(said), answer);
    t.strictSame(readdirSync(dirname(path)), ['a.sock'], 'no draft is left');
  });
}
