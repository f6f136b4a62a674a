/** Giver and taker in one process: the sockets of the one become further descriptors of the other. */
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  fstatSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import type { Test } from 'tap';
import {
  HandoverServer,
  KEEP_MS,
  RETAKE_MS,
  SILENT_MS,
  type Offered,
} from '../../src/handover/predecessor.ts';
import {
  HELLO,
  isAllowedUser,
  networkNamespace,
  type PreviousListener,
  refusal,
} from '../../src/handover/protocol.ts';
import { takeOver } from '../../src/handover/take-over.ts';
import { closeInherited, takeInherited } from '../../src/util/inherited.ts';
import { previousFlows } from '../../src/proxysocket/udp/known-clients.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { linuxTest } from '../support/linux-sys.ts';
import { shortDir } from '../support/short-dir.ts';
import { openDescriptors } from '../support/sockets.ts';
import { eventually, until } from '../support/until.ts';

const NOTHING: Offered = { listeners: [], flows: [], ports: [] };

/** A process that serves a path, with nothing to hand over unless said otherwise. */
function serving(t: Test, path: string, offer = async () => NOTHING) {
  const lines: { readonly msg: string; readonly reason?: string; readonly sockets?: number }[] = [];
  const note = (msg: string, keys = {}) => void lines.push({ msg, ...keys });
  const clock = new FakeClock();
  const server = new HandoverServer(path, offer, { info: note, warn: note }, clock);
  t.teardown(() => server.close());
  const reasons = (begin: string) =>
    lines.flatMap(({ msg, reason }) => (msg.startsWith(begin) ? [reason] : []));
  return {
    path,
    server,
    clock,
    /** How many sockets each call got. */
    given: () => lines.flatMap(({ sockets }) => sockets ?? []),
    failed: () => reasons('New process did not take over; still serving'),
    /** Why no process can call; the last one is undefined when one can again. */
    unreachable: () => reasons('Handover socket '),
  };
}

/** A process with one listener. */
async function rig(t: Test, name = 'socket', offer?: () => Promise<Offered>) {
  const tcp = createServer((socket) => socket.end('hello')).listen(0, '127.0.0.1');
  await once(tcp, 'listening');
  const { port } = tcp.address() as AddressInfo;
  const listener: PreviousListener = {
    servicePort: 'd/web:http',
    protocol: 'TCP',
    address: '127.0.0.1',
    traffic: 'internal',
    asked: port,
    port,
    key: `TCP 127.0.0.1 ${port}`,
  };
  t.teardown(() => {
    closeInherited();
    tcp.close();
  });
  const path = join(shortDir(t), name);
  return {
    port,
    listener,
    ...serving(t, path, offer ?? (async () => ({ ...NOTHING, listeners: [listener] }))),
  };
}

/** Takes over, which has to succeed. */
async function inherited(path: string) {
  const found = await takeOver(path);
  if (found.kind === 'inherited') return found;
  throw new Error(`it is ${JSON.stringify(found)}`);
}

/** The socket file of a process that was killed. */
async function leaveDeadSocket(path: string): Promise<void> {
  const dead = createServer().listen(`${path}.dead`);
  await once(dead, 'listening');
  renameSync(`${path}.dead`, path);
  dead.close();
  await once(dead, 'close');
}

linuxTest('a new process gets sockets with their data, and reports when it serves', async (t) => {
  const { port, path, server, given, listener } = await rig(t);
  await server.listen();
  const found = await inherited(path);
  t.match(found, { pid: process.pid, sockets: 1, previousListeners: [listener] });
  await until(() => given().length === 1);
  t.same(given(), [1]);
  const fd = takeInherited('TCP', '127.0.0.1', port) ?? -1;
  const adopted = createServer().listen({ fd });
  await once(adopted, 'listening');
  t.equal((adopted.address() as AddressInfo).port, port);
  const { ino } = fstatSync(fd);
  t.equal(server.newProcess, undefined);
  found.complete();
  t.equal(await server.handedOver, process.pid);
  t.same(server.newProcess?.served, new Set([ino]));
  adopted.close();
});

linuxTest('one that stops before it serves is reported, and another one may call', async (t) => {
  const { path, server, failed, given } = await rig(t);
  await server.listen();
  const before = openDescriptors();
  for (const hello of ['', 'no json\n', `${JSON.stringify({ handover: 99 })}\n`]) {
    const socket = connect(path);
    socket.on('error', () => undefined).resume();
    socket.end(hello);
    const count = failed().length;
    await until(() => failed().length > count);
    socket.destroy();
  }
  t.match(failed(), [/has ended/, /JSON/, /version 99 of the handover/]);
  await until(() => openDescriptors() === before);
  await inherited(path);
  // The giver is notified in its own time.
  await until(() => given().length > 0);
  t.same(given(), [1]);
});

linuxTest('one that never serves does not keep others from taking over', async (t) => {
  const { path, server, failed, given, clock } = await rig(t);
  await server.listen();
  t.equal((await inherited(path)).sockets, 1);
  await until(() => given().length === 1);
  clock.advance(SILENT_MS - 1);
  t.match(await takeOver(path), { kind: 'failed', reason: /ended|ECONNRESET|EPIPE/ });
  clock.advance(1);
  const found = await inherited(path);
  found.complete();
  t.equal(await server.handedOver, process.pid);
  t.equal(failed().length, 1);
});

linuxTest('of two that start at once, one gets the path, and the other one after it', async (t) => {
  const winner = await rig(t);
  const { path } = winner;
  const loser = serving(t, path);
  await winner.server.listen();
  await loser.server.listen();
  t.match(loser.unreachable(), [/another process listens on/]);
  loser.clock.advance(KEEP_MS);
  await until(() => loser.clock.pending > 0);
  const before = await inherited(path);
  t.equal(before.sockets, 1, 'the next restart finds it');
  // The same for a process that finds the path as it was before another one took over.
  const [next, late] = [serving(t, path), serving(t, path)];
  await next.server.listen(before.file);
  await late.server.listen(before.file);
  t.match([next.unreachable(), late.unreachable()], [[], [/another process/]]);
  winner.server.close();
  late.server.close();
  t.ok(existsSync(path));
  next.server.close();
  loser.clock.advance(KEEP_MS);
  await until(() => loser.unreachable().length === 2);
  t.equal(loser.unreachable()[1], undefined);
  t.match(await takeOver(path), { kind: 'inherited', sockets: 0 });
  loser.server.close();
  t.notOk(existsSync(path));
});

linuxTest('a removed socket file comes back, and one of a dead process is replaced', async (t) => {
  const { path, server, failed, clock } = await rig(t);
  await leaveDeadSocket(path);
  await server.listen();
  rmSync(path);
  clock.advance(KEEP_MS);
  await until(() => existsSync(path) && clock.pending > 0);
  const successor = connect(path);
  successor.on('error', () => undefined);
  await once(successor, 'connect');
  // It dies before it serves.
  await leaveDeadSocket(path);
  clock.advance(KEEP_MS / 2);
  successor.destroy();
  await until(() => failed().length > 0);
  clock.advance(RETAKE_MS);
  t.ok(await eventually(async () => (await takeOver(path)).kind === 'inherited'));
});

linuxTest('which processes may take over, and which cannot use the sockets', async (t) => {
  t.same([isAllowedUser(1000, 1000), isAllowedUser(0, 1000)], [true, true]);
  t.same([isAllowedUser(1001, 1000), isAllowedUser(1000, 0)], [false, false]);
  const here = networkNamespace();
  t.equal(refusal({ ...HELLO, network: here }), undefined);
  t.match(refusal({ ...HELLO, network: 'net:[1]' }), /another network namespace/);
  t.match(refusal({ handover: HELLO.handover + 1, network: here }), /version/);
});

linuxTest('the socket’s folder is created for this user only', async (t) => {
  const { server, path } = await rig(t, 'new/socket');
  await server.listen();
  t.ok(existsSync(path));
  t.equal(statSync(dirname(path)).mode & 0o777, 0o700);
  const { server: other, unreachable } = await rig(t, 'no/such/socket');
  await other.listen();
  t.match(unreachable(), [/ENOENT.*no\/such/]);
  const file = serving(t, join(dirname(path), 'file'));
  writeFileSync(file.path, 'a file');
  await file.server.listen();
  t.match(file.unreachable(), [/exists and is not a socket/]);
  file.server.close();
  t.equal(statSync(file.path).size, 6, 'the file is as it was');
});

linuxTest('a socket that the new process did not want or has closed is not served', async (t) => {
  for (const isTaken of [false, true]) {
    const { path, port, server } = await rig(t);
    await server.listen();
    const found = await inherited(path);
    if (isTaken) closeSync(takeInherited('TCP', '127.0.0.1', port) ?? -1);
    found.complete();
    await server.handedOver;
    t.same(server.newProcess?.served, new Set());
  }
});

linuxTest('engines that start before it serves get the previous endpoints', async (t) => {
  const flow = { servicePort: 'd/dns:dns', client: '10.0.0.9:5000', endpoint: '10.1.0.1:53' };
  const { path, server } = await rig(t, 'socket', async () => ({ ...NOTHING, flows: [flow] }));
  await server.listen();
  const found = await inherited(path);
  const engine = () => previousFlows(new FakeClock(), 30_000);
  const [early, client] = [engine(), { address: '10.0.0.9', port: 5000 }];
  found.complete();
  t.equal(engine()('d/dns:dns', client), undefined, 'the worker after one that died');
  t.equal(early('d/dns:dns', client), '10.1.0.1:53');
});

linuxTest('nothing is sent over a connection that was closed meanwhile', async (t) => {
  const asked = Promise.withResolvers<void>();
  const offer = Promise.withResolvers<Offered>();
  const { path, server, given, failed } = await rig(t, 'socket', () => {
    asked.resolve();
    return offer.promise;
  });
  await server.listen();
  const successor = connect(path).resume();
  successor.on('error', () => undefined);
  await asked.promise;
  server.close();
  await once(successor, 'close');
  offer.resolve(NOTHING);
  await until(() => failed().length > 0);
  t.same([failed(), given()], [['the connection is closed'], []]);
});
