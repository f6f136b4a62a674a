/** The whole program in a process that may open few files. */
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { adviseOnDescriptors } from '../../src/cli/sinks/userspace-runtime.ts';
import type { Log } from '../../src/observe/log.ts';
import { defaultReserve } from '../../src/proxysocket/core/descriptors.ts';
import { Cli } from '../support/cli.ts';
import { freePort } from '../support/sockets.ts';
import { connectionEnd, echoServer, tcpClient } from '../support/tcp-peers.ts';
import { UdpBackend, UdpClient } from '../support/udp-rig.ts';

const ULIMIT_256 = ['/bin/sh', '-c', 'ulimit -n 256 && exec "$0" "$@"'];

/** A TCP and a UDP service on loopback, proxied with 256 files at most. */
async function start(t: Test, ...flags: string[]): Promise<{ cli: Cli; tcp: number; udp: number }> {
  const folder = mkdtempSync(join(tmpdir(), 'kpng-few-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const [server, backend] = [await echoServer(t), await UdpBackend.start(t)];
  const [tcp, udp] = [await freePort(), await freePort()];
  const path = join(folder, 'state.yaml');
  writeFileSync(
    path,
    `
nodes: [{name: n1}]
services:
- service:
    name: echo
    ips: {clusterips: {v4: [127.0.0.1]}}
    ports:
    - {name: tcp, protocol: 1, port: ${tcp}, targetport: ${server.port}}
    - {name: udp, protocol: 2, port: ${udp}, targetport: ${backend.spec.port}}
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
`,
  );
  const line = `file -i ${path} to-local to-userspace --portal address --node-name n1`.split(' ');
  const servers = ['--metrics-bind-address=127.0.0.1:0', '--healthz-bind-address=127.0.0.1:0'];
  const cli = new Cli([...line, ...servers, ...flags], undefined, ULIMIT_256);
  t.teardown(async () => {
    cli.kill('SIGKILL');
    await cli.exited;
  });
  await cli.line('The first complete state is in place');
  return { cli, tcp, udp };
}

/** Whether a connection is served; if so it stays open. */
async function isServed(socket: Socket): Promise<boolean> {
  const ended = once(socket, 'close').then(() => false);
  socket.write('x');
  return Promise.race([once(socket, 'data').then(() => true), ended]).catch(() => false);
}

t.test(
  'with ulimit -n 256 clients are served, and TCP leaves a share to UDP',
  { skip: process.platform === 'linux' ? false : 'only on linux' },
  async (t) => {
    const { cli, tcp, udp } = await start(t);
    t.match(
      cli.log.find(({ level }) => level === 'warn'),
      { msg: /raise ulimit -n/, limit: 256, reserved: 64, left: 192 },
    );
    const regular = await UdpClient.open(t);
    // Two listeners leave 190 descriptors; 24 of them are for UDP, and a connection takes two.
    let served = 0;
    for (;;) {
      const socket = await tcpClient(t, tcp).catch(() => undefined);
      if (socket === undefined || !(await isServed(socket))) break;
      served += 1;
    }
    t.equal(served, 83);
    t.equal(await connectionEnd(t, tcp), 'ECONNRESET');
    await cli.line('Limit reached', { limit: 'reserved-descriptors', value: 166 });
    for (let client = 0; client < 30; client += 1) {
      const other = await UdpClient.open(t);
      t.equal(await other.ask('hello', udp), 'hello');
      t.equal(await regular.ask('still here', udp), 'still here');
    }
  },
);

t.test('a low file limit is a warning, a reserve that leaves nothing an error', (t) => {
  const low = /^warn: .*raise ulimit -n \{"limit":256,"reserved":64,"left":192\}$/;
  const nothing = /^error: No .*"left":0,"code":"KPNG_LIMIT_REACHED"\}$/;
  for (const [limit, reserve, expected] of [
    [65_536, defaultReserve(65_536), undefined],
    [1024, defaultReserve(1024), undefined],
    [256, defaultReserve(256), low],
    [256, 256, nothing],
    [100, 256, nothing],
  ] as const) {
    const lines: string[] = [];
    const note = (level: string, message: string, keys?: object) =>
      void lines.push(`${level}: ${message} ${JSON.stringify(keys)}`);
    const log = {
      warn: (message, keys) => note('warn', message, keys),
      error: (message, keys) => note('error', message, keys),
    } satisfies Pick<Log, 'warn' | 'error'>;
    adviseOnDescriptors(log as Log, limit, reserve);
    t.match(lines, expected === undefined ? [] : [expected]);
    t.equal(lines.length, expected === undefined ? 0 : 1);
  }
  t.end();
});
