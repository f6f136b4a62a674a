/** Two that want one place: who has it is named, and whoever waits gets it when it is free. */
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startCli } from '../support/cli.ts';
import { namedServer, request } from '../support/tcp-peers.ts';

const LINUX = process.platform === 'linux' ? false : 'only on linux';

function service(name: string, port: number, nodePort: number, targetPort: number): string {
  return `- service:
    name: ${name}
    ips: {clusterips: {v4: [127.0.0.1]}}
    ports: [{name: web, protocol: 1, port: ${port}, nodeport: ${nodePort}, targetport: ${targetPort}}]
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
`;
}

t.test('another program, by its name and process', { skip: LINUX }, async (t) => {
  const foreign = createServer().listen(0, '127.0.0.1');
  await once(foreign, 'listening');
  const { port } = foreign.address() as AddressInfo;
  const { endpoint } = await namedServer(t, 'ours');
  const folder = t.testdir({ 'state.yaml': `services:\n${service('a', port, 0, endpoint.port)}` });
  const line = `file --input ${join(folder, 'state.yaml')} to-local to-userspace --portal address`;
  const servers = ['--metrics-bind-address=', '--healthz-bind-address='];
  const cli = startCli(t, [...line.split(' '), ...servers]);
  const told = await cli.line('A part of the state cannot be proxied');
  t.match(told, { code: 'KPNG_LISTEN_ADDRESS_IN_USE', servicePortName: 'default/a:web' });
  t.match(told['err'], `(process ${process.pid}) listens there; stop it`);
  foreign.close();
  const again = await cli.line('A part of the state can be proxied again');
  t.match(again, { level: 'info', was: told['err'], servicePortName: 'default/a:web' });
  t.notOk(again['err'], 'which would look as if something failed');
  t.equal(await request(t, port), 'ours');
});

t.test('another service, which gives it up', async (t) => {
  const { endpoint } = await namedServer(t, 'ours');
  const free = createServer().listen(0, '127.0.0.1');
  await once(free, 'listening');
  const { port } = free.address() as AddressInfo;
  free.close();
  await once(free, 'close');
  const both = service('a', port, 0, endpoint.port) + service('b', port, 0, endpoint.port);
  const folder = t.testdir({ 'state.yaml': `services:\n${both}` });
  const path = join(folder, 'state.yaml');
  const line = `file --input ${path} to-local to-userspace --portal address -v=2`;
  const servers = ['--metrics-bind-address=', '--healthz-bind-address='];
  const cli = startCli(t, [...line.split(' '), ...servers]);
  const told = await cli.line('A part of the state cannot be proxied');
  t.match(told, {
    code: 'KPNG_PORTAL_CONFLICT',
    err: /default\/b:web cannot have .*: default\/a:web has it/,
  });
  writeFileSync(path, `services:\n${service('b', port, 0, endpoint.port)}`);
  await cli.line('A part of the state can be proxied again');
  t.equal(await request(t, port), 'ours');
});
