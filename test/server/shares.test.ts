import * as fc from 'fast-check';
import { once } from 'node:events';
import type { ClientHttp2Session } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { serverLimitReached } from '../../src/server/events.ts';
import { peerOf, Shares } from '../../src/server/shares.ts';
import { framed, openStreams, portOf, startApiRig } from '../support/api-rig.ts';
import { holds } from '../support/property.ts';
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

t.test('however greedy clients are, the next one gets a share', async (t) => {
  holds(
    t,
    fc.property(fc.integer({ min: 1, max: 20 }), fc.array(fc.nat(8)), (greedy, others) => {
      const shares = new Shares(1000);
      const back: (() => void)[] = [];
      for (const peer of Array(greedy).keys()) {
        for (;;) {
          const one = shares.take(peer);
          if (one === undefined) break;
          back.push(one);
        }
      }
      if (shares.take('the next one') === undefined) return false;
      for (const n of others) back[n]?.();
      for (const one of [...back, ...back]) one();
      return shares.used === 1;
    }),
  );
});

interface Client {
  readonly session: ClientHttp2Session;
  /** Makes a call, and resolves with its status when that comes, or with `open` when it continues. */
  readonly call: (path?: string) => Promise<string>;
}

function client(t: Test, socket: Socket): Client {
  const { session, open } = openStreams(t, socket);
  return {
    session,
    call: (path) => {
      const { promise, resolve } = Promise.withResolvers<string>();
      const stream = open(path);
      stream.on('error', () => {});
      const status = (headers: { 'grpc-status'?: unknown }): void => {
        const code = headers['grpc-status'];
        if (typeof code === 'string') resolve(code);
      };
      stream.on('response', status);
      stream.on('trailers', status);
      stream.on('data', () => resolve('open'));
      // What has one request only, is answered when the client has ended its side.
      if (path?.endsWith('Health/Watch')) stream.end(EMPTY);
      else stream.write(EMPTY);
      return promise;
    },
  };
}

async function times(n: number, call: () => Promise<string>): Promise<string[]> {
  const statuses: string[] = [];
  for (let i = 0; i < n; i += 1) statuses.push(await call());
  return statuses;
}

async function rig(t: Test, limits: { maxWatchers?: number; maxConnections?: number }) {
  const { server } = await startApiRig(t, { limits });
  const port = portOf(server);
  const dial = (localAddress: string): Socket => {
    const socket = connectTcp({ host: '127.0.0.1', port, localAddress });
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
    return socket;
  };
  return { server, dial, from: (address: string) => client(t, dial(address)) };
}

t.test('one client with many connections leaves streams to others', linux, async (t) => {
  const reached = collect(t, serverLimitReached);
  const { server, from } = await rig(t, { maxWatchers: 20 });
  const [first, second] = [from('127.0.0.2'), from('127.0.0.2')];
  const statuses = [...(await times(2, first.call)), ...(await times(4, second.call))];
  t.strictSame(statuses, ['open', 'open', 'open', 'open', '8', '8']);
  t.match(reached[0], { limit: 'max-watchers', value: 20, peer: /^127\.0\.0\.2/ });
  t.strictSame(await times(5, from('127.0.0.3').call), ['open', 'open', 'open', 'open', '8']);
  t.equal(await from('127.0.0.4').call('/globalv1.Sets/Watch'), 'open');
  t.equal(server.watchers, 9);
  first.session.destroy();
  await until(() => server.watchers === 7);
  t.equal(await second.call(), 'open', 'what it gave back it may have again');
});

t.test('calls of the health and reflection services count, too', linux, async (t) => {
  const { from } = await rig(t, { maxWatchers: 16 });
  const greedy = from('127.0.0.2');
  t.strictSame(await times(2, () => greedy.call('/grpc.health.v1.Health/Watch')), ['open', 'open']);
  t.strictSame(await times(3, greedy.call), ['open', 'open', '8']);
  t.equal(await greedy.call('/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'), '8');
  t.equal(await from('127.0.0.3').call(), 'open');
});

t.test('one client leaves connections to others', linux, async (t) => {
  const reached = collect(t, serverLimitReached);
  const { server, dial, from } = await rig(t, { maxConnections: 16 });
  const sockets = Array.from({ length: 7 }, () => dial('127.0.0.2'));
  let closed = 0;
  for (const socket of sockets) socket.on('close', () => (closed += 1)).resume();
  await until(() => closed === 3);
  t.equal(server.connections, 4);
  t.match(
    reached,
    [1, 2, 3].map(() => ({ limit: 'max-api-connections', value: 16, peer: '127.0.0.2' })),
  );
  t.equal(await from('127.0.0.3').call(), 'open');
});

t.test('on a unix socket each connection has a share', linux, async (t) => {
  const path = join(shortDir(t), 'api.sock');
  await startApiRig(t, { listen: `unix:${path}`, limits: { maxWatchers: 10 } });
  const dial = async (): Promise<Client> => {
    const socket = connectTcp(path);
    await once(socket, 'connect');
    return client(t, socket);
  };
  t.strictSame(await times(3, (await dial()).call), ['open', 'open', '8']);
  t.strictSame(await times(3, (await dial()).call), ['open', 'open', '8']);
});
