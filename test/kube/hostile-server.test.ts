/** An API server, or something that passes for one, that tries to use up memory or time. */
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { PassThrough } from 'node:stream';
import t from 'tap';
import { readBody, readLines } from '../../src/kube/body.ts';
import { DEFAULT_KUBE_LIMITS } from '../../src/kube/limits.ts';
import { systemClock } from '../../src/util/clock.ts';
import { service } from '../support/fake-api/objects.ts';
import { usedMemory } from '../support/sockets.ts';
import { MORE, STATE, addApi, lists, startKubeRig, watchFilled } from '../support/kube-rig.ts';
import { until } from '../support/until.ts';

const PIECES = 300_000;

t.test('lines and bodies in pieces of one byte take the memory of their bytes', async (t) => {
  const inUse = (): number => usedMemory().heapUsed + usedMemory().external;
  const limits = { maxBytes: PIECES, silenceMs: 1000, totalMs: 60_000 };
  const got: string[] = [];
  for (const read of [
    async (body: IncomingMessage) =>
      got.push((await readBody('', body, limits, systemClock)) ?? ''),
    (body: IncomingMessage) =>
      readLines('', body, limits, systemClock, (lines) => got.push(...lines)),
  ]) {
    const body = new PassThrough();
    const done = read(body as unknown as IncomingMessage);
    const before = inUse();
    // Each in memory of its own, as they come from chunks of one byte.
    for (let i = 0; i < PIECES; i += 1)
      body.emit('data', Buffer.from(new Uint8Array([0x78]).buffer));
    const grown = inUse() - before;
    t.ok(grown < 3 * 1024 * 1024, `${grown} bytes for ${PIECES}`);
    if (got.length > 0) body.emit('data', Buffer.from('\n'));
    body.end().resume();
    await done;
  }
  for (const { length } of got) t.equal(length, PIECES);
});

/** The nth page of a list without end. */
function page(n: number): string {
  const metadata = { resourceVersion: '7', continue: `token-${n}` };
  return JSON.stringify({ metadata, items: [service(`demo/s${n}`, '10.96.0.1')] });
}

for (const [what, limits] of Object.entries({
  pages: { maxListPages: 5 },
  bytes: { maxListBytes: 4 * page(0).length + 10 },
  objects: { maxObjects: 4 },
})) {
  t.test(`a list whose pages never end is abandoned after so many ${what}`, async (t) => {
    const { api, store, settled, failures, advanceUntil } = await watchFilled(t, { limits });
    const takeBack = [...Array(20).keys()].map((n) =>
      api.fault(page(n), { resource: 'services', verb: 'list', times: 1 }),
    );
    const before = lists(api);
    api.compact();
    for (const watch of api.watches('services')) watch.error(410, 'too old');
    await advanceUntil(() => failures.some(({ kind }) => kind === 'too-large'));
    t.match(failures.at(-1)?.error.code, 'KPNG_STATE_TOO_LARGE');
    t.equal(lists(api) - before, 5);
    await settled(...STATE);
    t.ok(store.synced, 'what is known stays');
    for (const each of takeBack) each();
    addApi(api);
    await advanceUntil(() => api.watches().length === 3);
    await settled(...MORE);
  });
}

t.test('objects that a watch adds count, too; none is lost once there are fewer', async (t) => {
  const limits = { maxObjects: 3 };
  const { api, settled, failures, advanceUntil, ...rig } = await watchFilled(t, { limits });
  for (const n of [1, 2, 3, 4]) {
    api.upsert('services', service(`demo/s${n}`, '10.96.0.1'));
    api.delete('services', `demo/s${n}`);
  }
  addApi(api);
  await settled(...MORE);
  t.strictSame(failures, [], 'deleted ones do not');
  for (const n of [1, 2]) api.upsert('services', service(`demo/s${n}`, '10.96.0.1'));
  await until(() => failures.length === 1);
  t.match(failures[0], { kind: 'too-large', relist: true });
  api.delete('services', 'demo/api');
  await advanceUntil(() => rig.lists.length === 4);
  await settled('demo/s1 10.96.0.1: ', 'demo/s2 10.96.0.1: ', ...STATE);
});

t.test('a watch that the server does not end is replaced by another one', async (t) => {
  const { api, clock, settled, failures, advanceUntil } = await watchFilled(t, {
    limits: { watchSeconds: [20, 20] },
  });
  const [first] = api.watches('services');
  const end = clock.now() + 60_000;
  await advanceUntil(() => {
    first?.raw(' \n');
    return clock.now() >= end;
  }, 1000);
  await until(() => api.watches('services').length === 1);
  t.not(api.watches('services')[0], first);
  addApi(api);
  await settled(...MORE);
  t.strictSame(failures, []);
  t.equal(lists(api), 1);
});

t.test('a flood of interim answers is cut off; each attempt has its connection', async (t) => {
  let [connections, closed] = [0, 0];
  const hints = Buffer.from('HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(2000));
  const server = createServer((socket) => {
    connections += 1;
    socket.on('error', () => {});
    socket.once('close', () => (closed += 1));
    const pour = (): void => {
      while (!socket.destroyed && socket.write(hints));
    };
    socket.on('drain', pour);
    socket.once('data', pour);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { failures, advanceUntil } = await startKubeRig(t, {
    source: { config: { kubeconfig: '', server: url, env: {} } },
  });
  await advanceUntil(() => failures.length >= 10);
  t.match(failures[0], { kind: 'unreachable', error: { message: /interim answers/ } });
  const { maxOutageWaitMs } = DEFAULT_KUBE_LIMITS;
  for (const { retryInMs } of failures) t.ok(retryInMs <= maxOutageWaitMs, `${retryInMs} ms`);
  await until(() => closed === connections);
  t.equal(connections, failures.length, 'each attempt had a connection of its own');
});
