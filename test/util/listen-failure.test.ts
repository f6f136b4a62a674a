import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { socketHolder } from '../../src/util/listen-failure.ts';

const SKIP = process.platform === 'linux' ? false : 'only on linux';

t.test('finds another process that listens', { skip: SKIP }, async (t) => {
  const script = `
    const server = require('node:net').createServer().listen(0, '127.0.0.1', () => {
      console.log(server.address().port);
    });`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => child.kill());
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  const port = Number(line.toString());
  for (const address of ['127.0.0.1', '0.0.0.0', '']) {
    const holder = await socketHolder({ protocol: 'TCP', address, port });
    t.match(holder, new RegExp(`^node\\S* \\(process ${child.pid}\\)$`), address);
  }
  t.equal(await socketHolder({ protocol: 'TCP', address: '127.0.0.2', port }), undefined);
  t.equal(await socketHolder({ protocol: 'UDP', address: '127.0.0.1', port }), undefined);
});

t.test('finds this process, and UDP sockets', { skip: SKIP }, async (t) => {
  const server = createServer().listen(0, '::');
  const socket = createSocket('udp4').bind(0, '127.0.0.1');
  t.teardown(() => {
    server.close();
    socket.close();
  });
  await Promise.all([once(server, 'listening'), once(socket, 'listening')]);
  const { port } = server.address() as AddressInfo;
  for (const address of ['127.0.0.1', '::1', '::', '0.0.0.0']) {
    const holder = await socketHolder({ protocol: 'TCP', address, port });
    t.equal(holder, `this process (${process.pid})`, address);
  }
  const udp = { protocol: 'UDP', address: '127.0.0.1', port: socket.address().port } as const;
  t.equal(await socketHolder(udp), `this process (${process.pid})`);
});

/** A made-up /proc. */
function proc(t: Test, tables: Record<string, string[]>): string {
  const root = t.testdir({});
  mkdirSync(join(root, 'net'));
  const head = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid';
  for (const [name, lines] of Object.entries(tables)) {
    writeFileSync(join(root, 'net', name), [head, ...lines, ''].join('\n'));
  }
  return root;
}

function row(local: string, state: string, user: number, inode: number): string {
  return `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000  ${user}        0 ${inode} 1 0 100 0 0 10 0`;
}

t.test('reports the user of a socket if it may not inspect the process', async (t) => {
  const root = proc(t, { tcp: [row('0100007F:1F90', '0A', 1000, 4242)] });
  const place = { protocol: 'TCP', address: '127.0.0.1', port: 8080 } as const;
  t.equal(await socketHolder(place, root), 'a program of user 1000');
  t.equal(await socketHolder(place, t.testdir({})), undefined, 'on other systems');
});

t.test('reads the addresses of the tables, and not connections', { skip: SKIP }, async (t) => {
  const root = proc(t, {
    tcp: [row('0100007F:0050', '01', 0, 1), row('0A00000A:0050', '0A', 0, 2)],
    tcp6: [
      row('000080FE00000000FF005450C2F4F1FE:0051', '0A', 0, 3),
      row('0000000000000000FFFF00000B00000A:0052', '0A', 0, 4),
    ],
  });
  for (const inode of [2, 3, 4]) {
    mkdirSync(join(root, `1${inode}/fd`), { recursive: true });
    writeFileSync(join(root, `1${inode}/comm`), `program${inode}\n`);
    symlinkSync(`socket:[${inode}]`, join(root, `1${inode}/fd/7`));
  }
  const program = (address: string, port: number) =>
    socketHolder({ protocol: 'TCP', address, port }, root);
  t.equal(await program('127.0.0.1', 80), undefined, 'a connection');
  t.equal(await program('10.0.0.10', 80), 'program2 (process 12)');
  t.equal(await program('fe80::5054:ff:fef1:f4c2', 81), 'program3 (process 13)');
  t.equal(await program('10.0.0.11', 82), 'program4 (process 14)', 'IPv4 inside IPv6');
  t.equal(await program('::', 80), undefined);
});
