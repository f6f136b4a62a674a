/** The commands as they are typed, against a proxy that is a process of its own. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { parse as parseYaml } from 'yaml';
import type { DrainOutcome } from '../../src/admin/changing.ts';
import type { ServicesView } from '../../src/admin/services.ts';
import type { ConnectionsView, StatusView } from '../../src/admin/standard.ts';
import { adminRig, runHere } from '../support/cli.ts';
import { shortDir } from '../support/short-dir.ts';
import { freePort } from '../support/sockets.ts';
import { tcpClient, tcpServer } from '../support/tcp-peers.ts';

/** A server that greets each client with a text and then echoes. Returns its port. */
async function greeter(t: Test, text: string): Promise<number> {
  const { port } = await tcpServer(t, (socket) => {
    socket.write(text);
    socket.pipe(socket);
  });
  return port;
}

/** Connects and waits for the greeting. */
async function greeted(t: Test, port = 0) {
  const socket = await tcpClient(t, port);
  const [text] = (await once(socket, 'data')) as [Buffer];
  return { socket, text: String(text) };
}

/** Whether a new client is rejected. */
async function refused(t: Test, port?: number): Promise<boolean> {
  const client = await greeted(t, port).catch(() => undefined);
  client?.socket.destroy();
  return client === undefined;
}

t.test('shows and drains a running proxy while connections continue', async (t) => {
  const [one, two] = [await greeter(t, 'one'), await greeter(t, 'two')];
  const rig = await adminRig(t, [
    { name: 'web', endpoints: [one, two] },
    { name: 'gone', endpoints: [] },
  ]);
  const { socket: open } = await greeted(t, rig.ports['web']);

  t.match(await rig.ask<StatusView>('status'), {
    process: { pid: rig.cli.child.pid, command: 'file to-userspace', nodeName: 'n1' },
    source: { name: /^state file \S+state\.yaml$/, connected: true },
    proxy: { portal: 'address', servicePorts: 2, active: { tcp: 1 } },
  });
  t.equal((await rig.run('status')).code, 1, 'degraded');
  const line = 'services --state problems --limit=5000 --output=yaml';
  const services = await rig.run(...line.split(' '));
  const { rows } = parseYaml(services.stdout) as ServicesView;
  t.equal(rows.map(({ name }) => name).join(), 'default/gone:tcp');

  const { connections } = await rig.ask<ConnectionsView>('connections', 'default/web');
  const client = `127.0.0.1:${open.localPort}`;
  t.match(connections, [{ servicePort: 'default/web:tcp', client, state: 'open', out: 3 }]);
  const [{ ageSeconds } = { ageSeconds: -1 }] = connections;
  t.ok(ageSeconds >= 0 && ageSeconds * 1000 < performance.now(), `${ageSeconds} s`);

  t.match(await rig.ask<DrainOutcome>('drain', 'default/web'), { servicePorts: 1, active: 1 });
  t.equal(await refused(t, rig.ports['web']), true);
  open.write('still there?');
  t.equal(String((await once(open, 'data'))[0]), 'still there?', 'the open connection continues');
  await rig.cli.line('Draining: no new connections', { what: 'default/web' });
  t.equal((await rig.run('undrain', 'default/web')).code, 0);
  await rig.run('drain', 'default/web', '--endpoint', `127.0.0.1:${one}`);
  for (let count = 0; count < 4; count += 1) {
    t.equal((await greeted(t, rig.ports['web'])).text, 'two', 'passed over');
  }

  t.equal((await rig.run('loglevel', '3')).stdout, '3\n');
  t.equal((await rig.run('loglevel')).stdout, '3\n', 'it stays');
  t.match(await rig.ask('connections', '--limit=1'), { connections: { length: 1 } });
  const short = await rig.run('services', 'web');
  t.match(short, { code: 1, stderr: /no service "web"; did you mean "default\/web"\?/ });
});

t.test('a drained process is not ready until undrain; stop drains and ends it', async (t) => {
  const health = await freePort();
  const services = [{ name: 'web', endpoints: [await greeter(t, 'hi')] }];
  const pages = ['healthz', 'metrics'].map((what) => `--${what}-bind-address=127.0.0.1:${health}`);
  const rig = await adminRig(t, services, [...pages, '--drain-timeout=30s']);
  await rig.cli.line('Serving metrics');
  const probe = async (name: string) => (await fetch(`http://127.0.0.1:${health}/${name}`)).status;
  const probes = () => Promise.all(['healthz', 'readyz', 'livez'].map(probe));
  const { socket } = await greeted(t, rig.ports['web']);
  const outcome = { what: 'everything', servicePorts: 1, active: 1 };
  t.match(await rig.ask<DrainOutcome>('drain', '--all'), outcome);
  t.strictSame(await probes(), [503, 503, 200]);
  const page = await (await fetch(`http://127.0.0.1:${health}/metrics`)).text();
  t.match(page, /^kpng_userspace_health\{reason="drained"\} 2$/m);
  t.equal(await refused(t, rig.ports['web']), true);
  const drained = await rig.run('status');
  t.equal(drained.code, 2, 'down');
  t.match(drained.stdout, /^state +down\n +drained; .*\n[^]*readyz +503: drained\n/);
  await rig.run('undrain');
  t.strictSame(await probes(), [200, 200, 200]);
  t.equal(await refused(t, rig.ports['web']), false);

  // Until the proxy has seen the end of the client that was let in.
  while ((await rig.ask<StatusView>('status')).proxy?.active.tcp !== 1);
  // As TERM does, without a signal.
  const { code, stdout } = await rig.run('stop');
  t.equal(code, 0);
  t.equal(stdout, `Stopping process ${rig.cli.child.pid}: 1 open connection\n`);
  await rig.cli.line('Stopping', { by: 'the admin socket' });
  await rig.cli.line('Waiting for connections to end');
  // Listeners close right after that line.
  while (!(await refused(t, rig.ports['web'])));
  const stopping = { health: { state: 'down', reasons: [{ code: 'stopping' }] } };
  t.match(await rig.ask<StatusView>('status'), stopping, 'it can be asked while it drains');
  t.equal((await rig.run('stop')).code, 0, 'twice is as once');
  socket.write('still there?');
  t.equal(String((await once(socket, 'data'))[0]), 'still there?', 'the open connection continues');
  socket.destroy();
  t.equal((await rig.cli.exited).code, 0);
  t.equal(existsSync(rig.socket), false, 'and takes its socket away');
});

t.test('commands report that no proxy runs', async (t) => {
  const socket = join(shortDir(t), 'none.sock');
  t.match(await runHere('services', '--socket', socket), {
    code: 1,
    stdout: '',
    stderr: `no answer on ${socket}: there is no such socket, so no proxy runs with it`,
  });
  t.match(await runHere('status', '--socket', socket), {
    code: 2,
    stdout: /^state +down\n +no answer on .*there is no such socket.* \(proxy-unreachable\)/,
  });
  const lost = { health: { state: 'down', reasons: [{ code: 'proxy-unreachable' }] } };
  const json = await runHere('status', '--socket', socket, '--output=json');
  t.match(JSON.parse(json.stdout), lost);
  t.match(await runHere('connections', 'a', 'b'), { code: 2, stderr: /may follow a: "b"/ });
  const bare = { code: 2, stderr: /drain: nothing is named; .* or the whole process with --all/ };
  t.match(await runHere('drain'), bare);
  t.match(await runHere('drain', ''), bare, 'a variable that is empty');
  t.match(await runHere('drain', 'ns/a', '--all'), { code: 2, stderr: /not both/ });
  t.match(await runHere('top'), { code: 1, stderr: /name it with --socket/ });
});
