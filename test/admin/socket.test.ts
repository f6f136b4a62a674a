/** The admin socket: who may open it, who has it, also beside other processes, and what is said over it. */
import { once } from 'node:events';
import * as fs from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { callAdmin } from '../../src/admin/client.ts';
import {
  checkDirectory,
  defaultSocketPath,
  isLocalName,
  isPipe,
} from '../../src/admin/socket-path.ts';
import { isLoopback } from '../../src/util/host-port.ts';
import { AdminScene } from '../support/admin-scene.ts';
import { shortDir } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

const unix = { skip: process.platform === 'win32' ? 'only on linux' : false };

const windows = { skip: process.platform === 'win32' ? false : 'only on windows' };

const WEB = { name: 'ns/web', address: '10.0.0.1', endpoints: ['10.1.0.1:80'] };

async function scene(t: Test, path: string, drainDelayMs = 0): Promise<AdminScene> {
  const made = new AdminScene([WEB]);
  await made.serve(t, path, drainDelayMs);
  return made;
}

const get = (socket: string, operation: string, input = {}): Promise<unknown> =>
  callAdmin({ socket, method: 'GET', operation, input });
const post = (socket: string, operation: string, input = {}): Promise<unknown> =>
  callAdmin({ socket, method: 'POST', operation, input });

const JSON_TYPE = { 'content-type': 'application/json' };

/** A request as it is, and the status and body of its answer. */
async function raw(
  target: { socketPath: string } | { host: string; port: string },
  method: string,
  path: string,
  body = '',
  headers: Record<string, string> = JSON_TYPE,
): Promise<{ status: number | undefined; text: string }> {
  const sent = httpRequest({ ...target, method, path, headers }).end(body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return { status: response.statusCode, text: await text(response) };
}

t.test('the socket is for its owner only, in a directory that is, too', unix, async (t) => {
  const path = join(shortDir(t), 'run', 'a.sock');
  const admin = await new AdminScene([WEB]).serve(t, path);
  t.equal(fs.statSync(path).mode & 0o777, 0o600);
  t.equal(fs.statSync(join(path, '..')).mode & 0o777, 0o700);
  t.equal(process.umask(0o022), 0o022, 'the mask is as before');
  t.match(await get(path, 'dump'), {
    status: { health: { state: 'ready' }, process: { pid: process.pid } },
    memory: { heapUsed: Number },
    history: { service: null },
    connections: { complete: true },
    services: [{ name: 'ns/web', endpointsList: [{ address: '10.1.0.1:80' }] }],
  });
  await admin.close();
  t.notOk(fs.existsSync(path), 'removed with its process');
});

t.test('the same over a named pipe of Windows', windows, async (t) => {
  const socket = String.raw`\\.\pipe\kpng-test-${process.pid}`;
  const { proxier } = await scene(t, socket);
  t.match(await get(socket, 'status'), { process: { pid: process.pid } });
  await post(socket, 'drain', { service: 'ns/web' });
  t.ok(proxier.drains.isDrained('ns/web'));
});

t.test('a live socket is left alone; its path is taken when it is free', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const holder = await new AdminScene([]).serve(t, path);
  const second = await scene(t, path);
  const [line] = second.log.lines;
  t.equal(line?.message, 'Serving the admin API failed; retrying');
  t.ok(Number.isInteger(line?.keys['retryInMs']), 'a wait in whole milliseconds');
  t.match(line?.keys['err'], {
    code: 'KPNG_ADMIN_SOCKET',
    message: `no admin socket at ${path}: process ${process.pid} (kube to-userspace) has it`,
  });
  second.clock.advance(1500);
  await until(() => second.clock.pending === 2);
  t.equal(second.log.lines.length, 1, 'reported once');
  await holder.close();
  for (let round = 0; round < 20 && !fs.existsSync(path); round += 1) {
    second.clock.advance(40_000);
    await until(() => fs.existsSync(path) || second.clock.pending > 1).catch(() => undefined);
  }
  t.match(await get(path, 'status'), { health: { state: 'ready' } });
});

t.test('anything but a socket is never removed', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  fs.writeFileSync(path, 'precious');
  const { log } = await scene(t, path);
  t.match(log.lines[0]?.keys['err'], { message: /something that is not a socket/ });
  t.ok(fs.existsSync(path));
});

t.test('a directory in which others could replace it is refused', unix, async (t) => {
  const dir = join(shortDir(t), 'open');
  fs.mkdirSync(dir);
  fs.chmodSync(dir, 0o777);
  const uid = process.getuid?.();
  const check = (path: string, user = uid) => checkDirectory(join(dir, path), user);
  const refuses = (path: string, message = /./, user = uid) =>
    t.rejects(check(path, user), { code: 'KPNG_ADMIN_SOCKET', message });
  await refuses('a.sock', /others may write to .* \(mode 0777\); chmod go-w/);
  for (const mode of [0o1777, 0o755]) {
    fs.chmodSync(dir, mode);
    await t.resolves(check('a.sock'), 'as in /tmp no one can');
  }
  await refuses('a.sock/b/c.sock');
  await refuses('x'.repeat(100), /longer than/);
  fs.writeFileSync(join(dir, 'file'), '');
  await refuses('file/a.sock');
  const other = fs.statSync(dir).uid + 1;
  if (uid === 0) {
    await t.resolves(check('a.sock', other), 'root may do anything anyhow');
    fs.chownSync(dir, other, 0);
  }
  await refuses('a.sock', /belongs to user/, uid === 0 ? uid : other);
  await t.rejects(checkDirectory(String.raw`C:\k\a.sock`, undefined, 'win32'), {
    code: 'KPNG_ADMIN_SOCKET',
    message: String.raw`no admin socket at C:\k\a.sock: on Windows it is a named pipe, such as \\.\pipe\NAME`,
  });
});

t.test('the default path depends on the system and the user', async (t) => {
  const of = (platform: NodeJS.Platform, uid: number | undefined, env = {}): string =>
    defaultSocketPath(platform, uid, env);
  t.equal(of('linux', 0), '/run/kpng-userspace/admin.sock');
  t.equal(of('darwin', 0), '/var/run/kpng-userspace/admin.sock');
  const user = { XDG_RUNTIME_DIR: '/run/user/1000' };
  t.equal(of('linux', 1000, user), '/run/user/1000/kpng-userspace/admin.sock');
  t.equal(of('linux', 1000), '', 'nowhere');
  t.equal(of('win32', undefined), String.raw`\\.\pipe\kpng-userspace-admin`);
  t.ok(isPipe(of('win32', undefined)));
  t.notOk(isPipe('/run/pipe/x'));
});

t.test('changes require POST, and bad input is reported', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const { proxier, log, health } = await scene(t, path);
  const outcome = { what: 'ns/web', servicePorts: 1, active: 0 };
  t.strictSame(await post(path, 'drain', { service: 'ns/web' }), outcome);
  t.equal(proxier.drains.isDrained('ns/web'), true);
  await post(path, 'undrain', { service: 'ns/web' });
  await post(path, 'drain');
  t.match(health.verdict.probes.readyz, { status: 503, failing: ['drained'] });
  await post(path, 'undrain');
  t.equal(health.verdict.probes.readyz.status, 200);
  t.strictSame(await post(path, 'loglevel', { level: 4 }), { level: 4 });
  t.equal(log.verbosity, 4);
  t.strictSame(await get(path, 'loglevel'), { level: 4 });

  for (const [method, where, body, status] of [
    ['GET', '/v1/drain', '', 405],
    ['POST', '/v1/status', '', 405],
    ['GET', '/v1/nothing', '', 404],
    ['GET', '/nothing', '', 404],
    ['POST', '/v1/drain', '{"service":', 400],
    ['POST', '/v1/drain', '[]', 400],
    ['POST', '/v1/drain', '{"service":{}}', 400],
    ['POST', '/v1/drain', '{"who":"me"}', 400],
    ['POST', '/v1/drain', '{"endpoint":"nowhere"}', 400],
    ['POST', '/v1/drain', '{"service":""}', 400],
    ['POST', '/v1/drain', '{"service":"","endpoint":""}', 400],
    ['POST', '/v1/drain', '{"service":"ns/other"}', 409],
    ['POST', '/v1/undrain', '{"service":"ns/web"}', 409],
    ['POST', '/v1/loglevel', '{"level":"11"}', 400],
    ['POST', '/v1/loglevel', '{}', 400],
    ['GET', '/v1/services?limit=-1', '', 400],
    ['GET', '/v1/services?sort=luck', '', 400],
    ['GET', '/v1/service', '', 400],
    ['GET', '/v1/service?name=x/y', '', 409],
    ['POST', '/v1/drain', `{"service":"${'x'.repeat(70_000)}"}`, 413],
  ] as const) {
    const answer = await raw({ socketPath: path }, method, where, body);
    t.equal(answer.status, status, `${method} ${where} ${body.slice(0, 40)}`);
    if (where.startsWith('/v1')) t.match(JSON.parse(answer.text), { error: { code: /^KPNG_/ } });
  }
  t.strictSame(proxier.drains.list(), [], 'none of it has done anything');
});

t.test('a page of another program cannot use a socket that is forwarded', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const { proxier } = await scene(t, path);
  const status = async (headers: Record<string, string>, method = 'POST'): Promise<unknown> => {
    const where = method === 'POST' ? '/v1/drain' : '/v1/status';
    return (await raw({ socketPath: path }, method, where, '', headers)).status;
  };
  t.equal(await status({}), 415, 'a form');
  t.equal(await status({ 'content-type': 'text/plain' }), 415);
  const evil = 'http://evil.example';
  t.equal(await status({ ...JSON_TYPE, host: 'localhost:8090', origin: evil }), 403);
  t.equal(await status({ ...JSON_TYPE, host: 'evil.example' }), 421, 'a name that resolves here');
  t.equal(await status({ host: 'evil.example' }, 'GET'), 421);
  t.strictSame(proxier.drains.list(), []);
  const own = { host: 'localhost:8090', origin: 'http://localhost:8090' };
  t.equal(await status(own, 'GET'), 200, 'its own page may read');
  t.equal(await status({ ...JSON_TYPE, ...own }), 200);
});

t.test('draining lets load balancers look elsewhere before it refuses', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const { proxier, health, clock } = await scene(t, path, 5000);
  const told = { what: 'everything', servicePorts: 1, active: 0, inSeconds: 5 };
  t.strictSame(await post(path, 'drain'), told);
  t.equal(health.verdict.probes.readyz.status, 503, 'at once');
  t.equal(proxier.drains.isAllDrained, false);
  clock.advance(4999);
  t.equal(proxier.drains.isAllDrained, false);
  clock.advance(1);
  t.equal(proxier.drains.isAllDrained, true);
  await post(path, 'undrain');
  await post(path, 'drain');
  await post(path, 'undrain');
  clock.advance(10_000);
  t.equal(proxier.drains.isAllDrained, false, 'taken back in time');
  await post(path, 'drain');
  clock.advance(3000);
  await post(path, 'drain');
  clock.advance(3000);
  t.equal(proxier.drains.isAllDrained, false, 'the delay begins again');
  await post(path, 'undrain');
  t.equal(health.verdict.probes.readyz.status, 200);
});

t.test('the client learns why no proxy answers', unix, async (t) => {
  const dir = shortDir(t);
  const answers = async (name: string, message: RegExp, server?: Server, timeoutMs = 10_000) => {
    const socket = join(dir, name);
    if (server !== undefined) {
      t.teardown(() => server.close());
      await once(server.listen(socket), 'listening');
    }
    const asked = callAdmin({ socket, method: 'GET', operation: 'status', timeoutMs });
    await t.rejects(asked, { code: 'KPNG_ADMIN_UNREACHABLE', message });
  };
  await answers('none', /no such socket/);
  const other = createServer((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\nhello'));
  await answers('other', /not kpng-userspace/, other);
  await answers('mute', /no answer within/, createServer(), 50);
  const dead = createServer();
  await once(dead.listen(join(dir, 'live')), 'listening');
  fs.linkSync(join(dir, 'live'), join(dir, 'dead'));
  dead.close();
  await answers('dead', /the process that it belonged to is gone/);
});

t.test('over TCP, only names of this host are answered, and nothing can be changed', async (t) => {
  const made = new AdminScene([]);
  const admin = await made.start({ page: true });
  t.teardown(() => admin.close());
  const url = await made.pageUrl();
  const { hostname, port } = new URL(url);
  t.equal(hostname, '127.0.0.1');
  const status = async (path: string, method = 'GET', host = `127.0.0.1:${port}`) =>
    (await raw({ host: hostname, port }, method, path, '', { host })).status;
  t.equal(await status('/v1/status'), 200);
  t.equal(await status('/v1/status', 'GET', 'localhost'), 200);
  t.equal(await status('/v1/status', 'GET', `rebound.example:${port}`), 421);
  for (const name of ['connections', 'dump', 'loglevel']) t.equal(await status(`/v1/${name}`), 403);
  t.equal(await status('/v1/drain', 'POST'), 405);
  const hosts = ['[::1]:80', '127.0.0.1', 'LOCALHOST:1', 'localhost.example', 'a', ''];
  t.strictSame(hosts.filter(isLocalName), hosts.slice(0, 3));
  const addresses = ['::1', '127.9.9.9', '0.0.0.0', '::', '10.0.0.1'];
  t.strictSame(addresses.filter(isLoopback), ['::1', '127.9.9.9']);
});

t.test('answers at its own path, even if clients kept coming until then', unix, async (t) => {
  const path = join(shortDir(t), 'a.sock');
  const own = `${path}.${process.pid}`;
  const admin = await new AdminScene([]).serve(t, path);
  const former = `${path}-former`;
  fs.linkSync(path, former);
  // As a new process does.
  const successor = createServer();
  t.teardown(() => successor.close());
  await once(successor.listen(`${path}-draft`), 'listening');
  fs.renameSync(`${path}-draft`, path);

  const leaving = admin.leave(4711);
  while (!fs.existsSync(own)) {
    const client = connect(former, () => client.destroy()).on('error', () => undefined);
    await new Promise((resolve) => client.once('close', resolve));
  }
  await leaving;
  t.match(await get(own, 'status'), { process: { pid: process.pid, successor: 4711 } });
  const refused = { code: 'KPNG_ADMIN_REFUSED', message: /^process 4711 has taken over / };
  for (const operation of ['drain', 'undrain']) await t.rejects(post(own, operation), refused);

  await admin.close();
  const left = fs.readdirSync(dirname(path)).sort();
  t.strictSame(left, ['a.sock', 'a.sock-former'], 'only what is of others');
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
    t.strictSame(fs.readdirSync(dirname(path)), ['a.sock'], 'no draft is left');
  });
}
