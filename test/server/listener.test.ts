import { execFile } from 'node:child_process';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { isExposed, parseListen } from '../../src/server/listen-address.ts';
import { portOf, startApiRig } from '../support/api-rig.ts';
import { shortDir } from '../support/short-dir.ts';

const posix = { skip: process.platform === 'win32' && 'only on linux' };

function fails(t: Test, listen: string, code: string | RegExp, message = /./) {
  return t.rejects(startApiRig(t, { listen }), { code, message });
}

t.test('a unix socket is for its owner and group, and gone afterwards', posix, async (t) => {
  const path = join(shortDir(t), 'api.sock');
  const mask = process.umask(0);
  t.teardown(() => process.umask(mask));
  const { cluster, server, watch } = await startApiRig(t, { listen: `unix://${path}` });
  t.equal(statSync(path).mode & 0o777, 0o770);
  t.equal(process.umask(), 0, 'the mask of the process is as before');
  cluster.complete();
  const call = watch();
  t.strictSame(await call.ask('n'), ['R', 'Y']);
  server.destroy();
  t.notOk(existsSync(path));
});

t.test('a socket that no one listens on any more is replaced', posix, async (t) => {
  const path = join(shortDir(t), 'api.sock');
  // The process dies without removing it.
  const script = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
  await promisify(execFile)(process.execPath, ['-e', script]).catch(() => {});
  t.ok(statSync(path).isSocket());
  const { cluster, watch } = await startApiRig(t, { listen: `unix:${path}` });
  cluster.complete();
  t.strictSame(await watch().ask('n'), ['R', 'Y']);
});

t.test('a socket that is in use, and a file of another kind, are left alone', posix, async (t) => {
  const dir = shortDir(t);
  const [taken, file] = [join(dir, 'taken.sock'), join(dir, 'file')];
  const server = createServer((socket) => socket.end()).listen(taken);
  await once(server, 'listening');
  t.teardown(() => server.close());
  const inUse = 'KPNG_LISTEN_ADDRESS_IN_USE';
  await fails(t, `unix:${taken}`, inUse, /^unix:\/\/\/.*: another process listens on it/);
  t.ok(existsSync(taken));
  writeFileSync(file, 'precious');
  await fails(t, `unix:${file}`, inUse, /exists and is not a socket/);
  t.ok(existsSync(file));
});

t.test('an address that is unavailable is named, with the reason', async (t) => {
  const { server } = await startApiRig(t);
  const holder = process.platform === 'linux' ? /:\d+: this process \(\d+\) listens there/ : /:\d+/;
  await fails(t, `tcp://127.0.0.1:${portOf(server)}`, 'KPNG_LISTEN_ADDRESS_IN_USE', holder);
  await fails(t, 'tcp://192.0.2.1:0', 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE');
  await fails(t, `unix://${join(shortDir(t), 'no', 'where.sock')}`, /^KPNG_LISTEN_/);
});

t.test('every address of one family', async (t) => {
  const { server, cluster, watch } = await startApiRig(t, { listen: 'tcp4://:0' });
  t.match(server.address, { kind: 'tcp', host: '', family: 4 });
  cluster.complete();
  t.strictSame(await watch().ask('n'), ['R', 'Y']);
  await t.rejects(once(connect(portOf(server), '::1'), 'connect'), 'not of the other one');
});

const tcp = (host: string, port: number, family?: 4 | 6) => ({ kind: 'tcp', host, port, family });

t.test('addresses as kpng writes them, and shorter', async (t) => {
  for (const [text, address] of [
    ['tcp://:12090', tcp('', 12090)],
    ['tcp://127.0.0.1:0', tcp('127.0.0.1', 0)],
    ['tcp4://:1', tcp('', 1, 4)],
    ['tcp6://[::1]:1', tcp('::1', 1, 6)],
    ['10.0.0.1:12090', tcp('10.0.0.1', 12090)],
    [':12090', tcp('', 12090)],
    ['localhost:12090', tcp('127.0.0.1', 12090)],
    ['unix:///run/kpng.sock', { kind: 'unix', path: '/run/kpng.sock' }],
    ['unix:kpng.sock', { kind: 'unix', path: 'kpng.sock' }],
    ['unix://kpng.sock', { kind: 'unix', path: 'kpng.sock' }],
  ] as const)
    t.strictSame(parseListen(text), address, text);
});

t.test('an invalid address is reported with the flag', async (t) => {
  for (const [text, problem] of [
    ['', /expected an address/],
    ['tcp://', /expected an address/],
    ['tcp://host:1', /expected an address/],
    ['tcp://127.0.0.1', /expected an address/],
    ['tcp://127.0.0.1:70000', /expected an address/],
    ['http://127.0.0.1:1', /the scheme "http" is not known/],
    ['unixpacket:///run/x', /the scheme "unixpacket" is not known/],
    ['tcp4://[::1]:1', /not one of IPv4/],
    ['tcp6://127.0.0.1:1', /not one of IPv6/],
    ['unix:', /the path of the socket is missing/],
  ] as const) {
    t.throws(() => parseListen(text), { code: 'KPNG_USAGE', message: problem }, text);
  }
});

t.test('only loopback and unix sockets are out of reach for others', async (t) => {
  for (const text of ['127.0.0.1:1', '127.5.5.5:1', 'tcp://[::1]:1', 'unix:x']) {
    t.equal(isExposed(parseListen(text)), false, text);
  }
  for (const text of [':1', '0.0.0.0:1', '10.0.0.1:1', 'tcp6://:1', '[fd00::1]:1']) {
    t.equal(isExposed(parseListen(text)), true, text);
  }
});
