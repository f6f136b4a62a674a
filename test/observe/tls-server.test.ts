import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { MAX_HTTP_CONNECTIONS, startHttpServer } from '../../src/util/http-server.ts';
import { tlsServers } from '../../src/observe/tls-server.ts';
import { TLS_LOOK_MS } from '../../src/util/tls-follow.ts';
import { makeAuthority } from '../support/certs.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { shortDir } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

async function setup(t: Test) {
  const authority = await makeAuthority(t);
  const names = { first: await authority.issue('first'), second: await authority.issue('second') };
  const dir = shortDir(t);
  const files = { crt: join(dir, 'tls.crt'), key: join(dir, 'tls.key') };
  const put = (name: keyof typeof names, ...which: ('crt' | 'key')[]): void => {
    for (const each of which) copyFileSync(names[name][each], files[each]);
  };
  put('first', 'crt', 'key');
  const clock = new FakeClock();
  const told: string[] = [];
  const tls = await tlsServers({
    files,
    flags: { crt: '--crt', key: '--key', ca: '' },
    clock,
    onChanged: () => told.push('changed'),
    onFailed: (error) => told.push(error.code),
  });
  if (tls === undefined) throw new Error('there are files');
  t.teardown(() => tls.close());
  const listening = Promise.withResolvers<number>();
  const server = startHttpServer({
    address: { host: '127.0.0.1', port: 0 },
    clock,
    create: tls.create,
    answer: () => ({ status: 200, type: 'a/b', body: '' }),
    onListening: ({ port }) => listening.resolve(port),
    onBindFailed: (error) => listening.reject(error),
    onAnswerFailed: () => {},
  });
  t.teardown(() => server.close());
  const port = await listening.promise;
  const client = async (): Promise<TLSSocket> => {
    const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false });
    t.teardown(() => socket.destroy());
    socket.on('error', () => {});
    await once(socket, 'secureConnect');
    return socket;
  };
  const who = async (): Promise<string> => {
    const { subject } = (await client()).getPeerCertificate();
    return String(subject.CN);
  };
  return { put, clock, told, client, who, port };
}

t.test(
  'files that change are used for new connections, files that are wrong are not',
  async (t) => {
    const { put, clock, told, who } = await setup(t);
    t.equal(await who(), 'first');
    put('second', 'crt');
    clock.advance(TLS_LOOK_MS);
    await until(() => told.length === 1);
    t.same(told, ['KPNG_TLS_FILE'], 'the key is not that of the certificate');
    t.equal(await who(), 'first');
    put('second', 'key');
    await until(() => {
      clock.advance(TLS_LOOK_MS);
      return told.length === 2;
    });
    t.same(told, ['KPNG_TLS_FILE', 'changed']);
    t.equal(await who(), 'second');
  },
);

t.test('clients that say nothing keep nobody out, with TLS or without', async (t) => {
  const { client, port } = await setup(t);
  const working = await client();
  const request = async (socket: TLSSocket): Promise<void> => {
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    t.match(String((await once(socket, 'data'))[0]), /^HTTP\/1\.1 200 /);
  };
  await request(working);
  for (let n = 0; n < MAX_HTTP_CONNECTIONS + 5; n += 1) {
    const silent = connect(port, '127.0.0.1');
    t.teardown(() => silent.destroy());
    silent.on('error', () => {});
    await once(silent, 'connect');
  }
  await request(await client());
});

t.test('without files there is no TLS', async (t) => {
  const options = { flags: { crt: 'a', key: 'b', ca: '' }, clock: new FakeClock() };
  const nobody = { onChanged: () => {}, onFailed: () => {} };
  t.equal(await tlsServers({ files: {}, ...options, ...nobody }), undefined);
  await t.rejects(tlsServers({ files: { crt: '/no/such', key: '/no' }, ...options, ...nobody }), {
    code: 'KPNG_TLS_FILE',
  });
});
