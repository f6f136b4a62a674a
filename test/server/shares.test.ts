import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { serverLimitReached } from '../../src/server/events.ts';
import { peerOf } from '../../src/server/shares.ts';
import { framed, openStreams, portOf, startApiRig } from '../support/api-rig.ts';
import { shortDir } from '../support/short-dir.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

const linux = { skip: process.platform !== 'linux' && 'only on linux' };
/** A message of gRPC without content. */
const EMPTY = framed(Buffer.alloc(0));

t.test('clients are distinguished by address, IPv6 ones by its first half', async (t) => {
  const same = (...addresses: string[]) =>
    new Set(addresses.map((remoteAddress) => peerOf(remoteAddress, {}))).size === 1;
  t.ok(same('10.0.0.1', '::ffff:10.0.0.1'));
  t.ok(same('2001:db8::1', '2001:db8::2', '2001:db8:0:0:ffff::', '2001:db8:0:0:1:2:3:4'));
  t.ok(same('fe80::1%eth0', 'fe80::1%eth1'));
  t.notOk(same('10.0.0.1', '10.0.0.2'));
  t.notOk(same('2001:db8::1', '2001:db8:0:1::1'));
  t.notOk(same('2001:db8::1', '2001:db8:1::1'));
  t.ok(same('::1', '::2'));
  t.not(peerOf(undefined, {}), peerOf(undefined, {}), 'without addresses, by connection');
});

/** A client that makes calls; each resolves with its status, or with `open` when it continues. */
function client(t: Test, socket: Socket) {
  const { session, open } = openStreams(t, socket);
  const call = (path?: string): Promise<string> => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const stream = open(path);
    stream.on('error', () => {});
    for (const event of ['response', 'trailers']) {
      stream.on(event, (headers: { 'grpc-status'?: string }) => {
        if (headers['grpc-status'] !== undefined) resolve(headers['grpc-status']);
      });
    }
    stream.on('data', () => resolve('open'));
    // What has one request only, is answered when the client has ended its side.
    if (path?.endsWith('Health/Watch')) stream.end(EMPTY);
    else stream.write(EMPTY);
    return promise;
  };
  const calls = async (n: number, path?: string): Promise<string> => {
    const statuses: string[] = [];
    while (statuses.length < n) statuses.push(await call(path));
    return statuses.join(' ');
  };
  return { session, calls };
}

async function rig(t: Test, limits: { maxWatchers?: number; maxConnections?: number }) {
  const { server } = await startApiRig(t, { limits });
  const dial = (localAddress: string): Socket => {
    const socket = connectTcp({ host: '127.0.0.1', port: portOf(server), localAddress });
    t.teardown(() => socket.destroy());
    return socket.on('error', () => {});
  };
  return { server, dial, from: (address: string) => client(t, dial(address)) };
}

t.test('one client with many connections leaves streams to others', linux, async (t) => {
  const reached = collect(t, serverLimitReached);
  const { server, from } = await rig(t, { maxWatchers: 20 });
  const [first, second] = [from('127.0.0.2'), from('127.0.0.2')];
  const third = from('127.0.0.3');
  t.equal(await first.calls(2), 'open open');
  t.equal(await second.calls(4), 'open open 8 8');
  t.match(reached[0], { limit: 'max-watchers', value: 20, peer: /^127\.0\.0\.2/ });
  t.equal(await third.calls(5), 'open open open open 8');
  t.equal(await from('127.0.0.4').calls(1, '/globalv1.Sets/Watch'), 'open');
  t.equal(server.watchers, 9);
  for (const { session } of [first, third]) session.destroy();
  await until(() => server.watchers === 3);
  t.equal(await second.calls(3), 'open open 8', 'a share of what is free again');
});

t.test('calls of the health and reflection services count, too', linux, async (t) => {
  const { from } = await rig(t, { maxWatchers: 16 });
  const greedy = from('127.0.0.2');
  t.equal(await greedy.calls(2, '/grpc.health.v1.Health/Watch'), 'open open');
  t.equal(await greedy.calls(3), 'open open 8');
  t.equal(await greedy.calls(1, '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'), '8');
  t.equal(await from('127.0.0.3').calls(1), 'open');
});

t.test('one client leaves connections to others', linux, async (t) => {
  const reached = collect(t, serverLimitReached);
  const { dial, from } = await rig(t, { maxConnections: 16 });
  const sockets = Array.from({ length: 7 }, () => dial('127.0.0.2'));
  let closed = 0;
  for (const socket of sockets) socket.on('close', () => (closed += 1)).resume();
  await until(() => closed === 3);
  const each = { limit: 'max-api-connections', value: 16, peer: '127.0.0.2' };
  t.match(reached, [each, each, each]);
  t.equal(await from('127.0.0.3').calls(1), 'open');
});

t.test('on a unix socket each connection has a share', linux, async (t) => {
  const path = join(shortDir(t), 'api.sock');
  await startApiRig(t, { listen: `unix:${path}`, limits: { maxWatchers: 10 } });
  for (const _ of [1, 2]) {
    const socket = connectTcp(path);
    await once(socket, 'connect');
    t.equal(await client(t, socket).calls(3), 'open open 8');
  }
});
