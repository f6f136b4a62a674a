import t from 'tap';
import { type ServicesQuery, SORT_KEYS } from '../../src/admin/services.ts';
import { standardOperations } from '../../src/admin/standard.ts';
import { AdminScene, sceneViews, type SceneService } from '../support/admin-scene.ts';

const SERVICES: readonly SceneService[] = [
  {
    name: 'shop/cart:http',
    address: '10.96.0.2',
    nodePort: 30_080,
    endpoints: ['10.1.0.1:80', '10.1.0.2:80'],
    failing: ['10.1.0.2:80'],
    traffic: () => ({ connections: 5, bytesIn: 10, bytesOut: 900, refused: 1, active: 3 }),
  },
  { name: 'shop/cart:https', address: '10.96.0.2', port: 443, endpoints: ['10.1.0.1:443'] },
  { name: 'shop/empty', address: '10.96.0.3', endpoints: [] },
  {
    name: 'data/db',
    address: '10.96.0.4',
    endpoints: ['10.1.0.9:5432'],
    broken: true,
    traffic: () => ({ connections: 1, bytesIn: 5000, bytesOut: 20, active: 9 }),
  },
];

function rig() {
  const scene = new AdminScene(SERVICES, [
    { code: 'KPNG_X', message: 'the address is missing', servicePort: 'data/db', count: 1 },
  ]);
  const views = sceneViews(scene, 10);
  const names = async (query: Partial<ServicesQuery>): Promise<string[]> =>
    (await views.list(query)).rows.map(({ name }) => name);
  return { scene, names, ...views };
}

t.test('a row has the addresses, states and numbers of a service port', async (t) => {
  const { list } = rig();
  const { rows, total, matched, states } = await list();
  t.strictSame([total, matched], [4, 4]);
  t.match(states, { ok: 1, degraded: 1, down: 1, 'no-endpoints': 1, drained: 0 });
  const cart = rows.find(({ name }) => name === 'shop/cart:http');
  t.match(cart, {
    protocol: 'TCP',
    state: 'degraded',
    addresses: ['10.96.0.2:80', '*:30080'],
    endpoints: { total: 2, usable: 1 },
    listeners: { open: 1, failed: 0 },
    active: 3,
    totals: { connections: 50, bytesIn: 100, bytesOut: 9000, errors: 10 },
    rates: { connections: 5, bytesIn: 10, bytesOut: 900, errors: 1 },
  });
  t.equal(cart?.spark?.at(-1), 910);
  t.equal(rows.find(({ name }) => name === 'shop/empty')?.spark, undefined);
});

t.test(
  'sorted by any column: the largest first, names from A, states from the worst',
  async (t) => {
    const { names } = rig();
    const first = Object.fromEntries(
      await Promise.all(SORT_KEYS.map(async (sort) => [sort, (await names({ sort }))[0]] as const)),
    );
    t.strictSame(first, {
      name: 'data/db',
      state: 'data/db',
      active: 'data/db',
      connections: 'shop/cart:http',
      in: 'data/db',
      out: 'shop/cart:http',
      errors: 'shop/cart:http',
      endpoints: 'shop/cart:http',
    });
    t.strictSame(await names({ sort: 'active' }), [
      'data/db',
      'shop/cart:http',
      'shop/cart:https',
      'shop/empty',
    ]);
    t.strictSame((await names({ sort: 'name', reverse: true }))[0], 'shop/empty');
  },
);

t.test('found by words of the name or of an address', async (t) => {
  const { names } = rig();
  t.strictSame(await names({ search: 'CART' }), ['shop/cart:http', 'shop/cart:https']);
  t.strictSame(await names({ search: 'shop 443' }), ['shop/cart:https']);
  t.strictSame(await names({ search: '30080' }), ['shop/cart:http']);
  t.strictSame(await names({ search: 'nobody' }), []);
});

t.test('filtered by state, use and problems', async (t) => {
  const { scene, names } = rig();
  t.strictSame(await names({ state: 'traffic' }), ['data/db', 'shop/cart:http']);
  t.strictSame(await names({ state: 'problems' }), ['data/db', 'shop/cart:http', 'shop/empty']);
  t.strictSame(await names({ state: 'no-endpoints' }), ['shop/empty']);
  await scene.proxier.drain({ kind: 'service', service: 'shop/cart' });
  t.strictSame(await names({ state: 'drained' }), ['shop/cart:http', 'shop/cart:https']);
});

t.test('lists, status and details agree on an endpoint that refuses', async (t) => {
  const { scene, sampler, details } = rig();
  const operations = standardOperations(scene.subject, sampler);
  const ask = async (name: string, input = {}) =>
    operations.find((each) => each.name === name)?.run(input, new AbortController().signal);
  const agree = async (state: string, count: object): Promise<void> => {
    const [cart] = await details('shop/cart:http');
    t.equal(cart?.state, state);
    t.match(await ask('services', { search: 'cart:http', limit: '1' }), {
      states: count,
      rows: [{ name: 'shop/cart:http', state }],
    });
    t.match(await ask('status'), { proxy: { states: count } });
  };
  await agree('degraded', { ok: 1, degraded: 1, down: 1 });
  t.match(await ask('services', { state: 'problems' }), { matched: 3 });
  await scene.proxier.drain({ kind: 'endpoint', endpoint: '10.1.0.1:80' });
  await agree('down', { ok: 1, degraded: 0, down: 2 });
});

t.test('sorted by what the columns show: the total of errors, endpoints that accept', async (t) => {
  const once = (second: number): object => (second === 0 ? { refused: 100 } : {});
  const scene = new AdminScene([
    { name: 'a/past', address: '10.96.0.1', endpoints: ['10.1.0.1:80'], traffic: once },
    {
      name: 'a/now',
      address: '10.96.0.2',
      endpoints: ['10.1.0.1:81', '10.1.0.2:81', '10.1.0.3:81'],
      failing: ['10.1.0.1:81', '10.1.0.2:81', '10.1.0.3:81'],
      traffic: () => ({ refused: 1 }),
    },
  ]);
  const { list } = sceneViews(scene, 10);
  const rows = async (sort: ServicesQuery['sort']) => (await list({ sort })).rows;
  t.match(await rows('errors'), [{ name: 'a/past', totals: { errors: 100 } }, { name: 'a/now' }]);
  t.match(await rows('endpoints'), [
    { name: 'a/past', endpoints: { usable: 1, total: 1 } },
    { name: 'a/now', state: 'down', endpoints: { usable: 0, total: 3 } },
  ]);
});

t.test('the details of a service port show the state of each endpoint', async (t) => {
  const { scene, details } = rig();
  await scene.proxier.drain({ kind: 'endpoint', endpoint: '10.1.0.1:80' });
  const [cart] = await details('shop/cart:http');
  t.match(cart, {
    state: 'down',
    endpointsList: [
      { address: '10.1.0.1:80', state: 'drained' },
      {
        address: '10.1.0.2:80',
        state: 'failing',
        traffic: ['internal', 'external'],
        active: 0,
        errors: 3,
        connectSeconds: null,
        failingSince: /^2.*Z$/,
        lastError: { cause: 'refused', at: /^2.*Z$/ },
      },
    ],
    listenersList: [{ address: '10.96.0.2:80', state: 'listening' }],
    connectErrors: { refused: 10 },
    counters: { retries: 10 },
    affinity: 'none',
  });
  t.strictSame(cart?.connectTimes, { count: 60, p50: 0.001, p90: 0.005, p99: 0.005 });
  const [db] = await details('data/db');
  t.match(db, { state: 'down', problems: [{ code: 'KPNG_X' }] });
  t.match(db?.listenersList, [{ state: 'failed', cause: 'EADDRNOTAVAIL' }]);
});

t.test('the status adds everything up, and reports the state of the process', async (t) => {
  const { scene, status } = rig();
  scene.health.sourceNamed('kube at https://10.0.0.1:6443', true);
  t.match(await status(), {
    health: {
      state: 'degraded',
      reasons: [
        { code: 'listeners-failed', count: 1 },
        { code: 'services-down', count: 1 },
        { code: 'services-without-endpoints', count: 1 },
      ],
    },
    source: { name: 'kube at https://10.0.0.1:6443', connected: true, syncAgeSeconds: 0 },
    process: { pid: process.pid, nodeName: 'node-1', command: 'kube to-userspace' },
    proxy: {
      servicePorts: 4,
      endpoints: 4,
      listeners: { open: 3, failed: 1 },
      active: { tcp: 12, udp: 0 },
      totals: { connections: 60, errors: 10 },
      rates: { connections: 6 },
      problems: [{ code: 'KPNG_X' }],
    },
  });
  scene.health.change({ stopping: true });
  t.match(await status(), {
    health: { state: 'down', probes: { readyz: { status: 503, failing: ['stopping'] } } },
  });
});
