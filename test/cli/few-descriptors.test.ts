/** The whole program in a process that may open few files. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import t, { type Test } from 'tap';
import { adviseOnDescriptors } from '../../src/cli/sinks/userspace-runtime.ts';
import { defaultReserve } from '../../src/proxysocket/core/descriptors.ts';
import { captureLog } from '../support/captured-log.ts';
import { Cli, stateFile } from '../support/cli.ts';
import { connectionEnd, echoServer, tcpClient } from '../support/tcp-peers.ts';
import { UdpBackend, UdpClient } from '../support/udp-rig.ts';

const ULIMIT_256 = ['/bin/sh', '-c', 'ulimit -n 256 && exec "$0" "$@"'];

/** A TCP and a UDP service on loopback, proxied with 256 files at most. */
async function start(t: Test, ...flags: string[]): Promise<{ cli: Cli; tcp: number; udp: number }> {
  const [server, backend] = [await echoServer(t), await UdpBackend.start(t)];
  const { path, ports } = await stateFile(t, [
    { name: 'tcp', endpoints: [server.port] },
    { name: 'udp', endpoints: [backend.spec.port], protocol: 'UDP' },
  ]);
  const line = `file -i ${path} to-local to-userspace --portal address --node-name n1`.split(' ');
  const servers = ['--metrics-bind-address=127.0.0.1:0', '--healthz-bind-address=127.0.0.1:0'];
  const cli = new Cli(t, [...line, ...servers, ...flags], undefined, ULIMIT_256);
  await cli.line('The first complete state is in place');
  return { cli, tcp: ports['tcp'] ?? 0, udp: ports['udp'] ?? 0 };
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

t.test('a low file limit is a warning, a reserve that leaves nothing an error', async (t) => {
  const { log, lines } = await captureLog();
  adviseOnDescriptors(log, 1024, defaultReserve(1024));
  t.same(lines(), []);
  adviseOnDescriptors(log, 256, defaultReserve(256));
  adviseOnDescriptors(log, 256, 256);
  adviseOnDescriptors(log, 100, 256);
  const none = { level: 'error', left: 0, code: 'KPNG_LIMIT_REACHED' };
  t.match(lines(), [{ level: 'warn', msg: /raise ulimit -n/, left: 192 }, none, none]);
});
