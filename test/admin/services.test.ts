/** Which service ports a list has, in which order, and that all answers agree; text.test.ts has their values. */
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import t from 'tap';
import type { ServicesQuery } from '../../src/admin/services.ts';
import { standardOperations } from '../../src/admin/standard.ts';
import { PER_PART } from '../../src/observe/service-state.ts';
import { AdminScene, sceneViews, SHOP } from '../support/admin-scene.ts';

const [DB, HTTP, HTTPS, EMPTY] = ['data/db', 'shop/cart:http', 'shop/cart:https', 'shop/empty'];

/** Queries, and the names that they find. */
const QUERIES: readonly (readonly [Partial<ServicesQuery>, ...(string | undefined)[]])[] = [
  // The largest first, names from A, states from the worst.
  [{ sort: 'name' }, DB, HTTP, HTTPS, EMPTY],
  [{ sort: 'name', reverse: true }, EMPTY, HTTPS, HTTP, DB],
  [{ sort: 'state' }, DB, HTTP, EMPTY, HTTPS],
  [{ sort: 'active' }, DB, HTTP, HTTPS, EMPTY],
  [{ sort: 'active', reverse: true }, HTTPS, EMPTY, HTTP, DB],
  [{ sort: 'connections' }, HTTP, DB, HTTPS, EMPTY],
  [{ sort: 'in' }, DB, HTTP, HTTPS, EMPTY],
  [{ sort: 'out' }, HTTP, DB, HTTPS, EMPTY],
  [{ sort: 'errors' }, HTTP, DB, HTTPS, EMPTY],
  [{ sort: 'endpoints' }, HTTP, DB, HTTPS, EMPTY],
  // By words of the name or of an address.
  [{ search: 'CART' }, HTTP, HTTPS],
  [{ search: 'shop 443' }, HTTPS],
  [{ search: '30080' }, HTTP],
  [{ search: 'nobody' }],
  // By state, use and problems.
  [{ state: 'traffic' }, DB, HTTP],
  [{ state: 'problems' }, DB, HTTP, EMPTY],
  [{ state: 'no-endpoints' }, EMPTY],
  [{ offset: 1, limit: 2 }, HTTP, HTTPS],
];

t.test('sorted, found and filtered', async (t) => {
  const scene = new AdminScene(SHOP);
  const { list } = sceneViews(scene, 10);
  const names = async (query: Partial<ServicesQuery>): Promise<string[]> =>
    (await list(query)).rows.map(({ name }) => name);
  for (const [query, ...expected] of QUERIES) {
    t.strictSame(await names(query), expected, JSON.stringify(query));
  }
  const { rows } = await list();
  const rates = rows.map(({ spark }) => spark?.at(-1));
  t.strictSame(rates, [5020, 91_000, undefined, undefined]);
  t.match(rows[0]?.listeners, { open: 0, failed: 1 });
  await scene.proxier.drain({ kind: 'service', service: 'shop/cart' });
  t.strictSame(await names({ state: 'drained' }), [HTTP, HTTPS]);
});

t.test('sorted by what the columns show: the total of errors, endpoints that accept', async (t) => {
  const endpoints = ['10.1.0.1:81', '10.1.0.2:81', '10.1.0.3:81'];
  const once = (second: number): object => (second === 0 ? { refused: 100 } : {});
  const always = { endpoints, failing: endpoints, traffic: () => ({ refused: 1 }) };
  const scene = new AdminScene([
    { name: 'a/past', address: '10.96.0.1', endpoints: ['10.1.0.1:80'], traffic: once },
    { name: 'a/now', address: '10.96.0.2', ...always },
  ]);
  const { list } = sceneViews(scene, 10);
  for (const sort of ['errors', 'endpoints'] as const) {
    t.match((await list({ sort })).rows, [{ name: 'a/past' }, { name: 'a/now' }], sort);
  }
});

t.test('lists, status and details agree on an endpoint that refuses', async (t) => {
  const problem = { code: 'KPNG_X', message: 'no', servicePort: 'shop/cart', count: 1 };
  const scene = new AdminScene(SHOP, [problem]);
  const { sampler, details } = sceneViews(scene, 10);
  const operations = standardOperations(scene.subject, sampler);
  const ask = async (name: string, input = {}) =>
    operations.find((each) => each.name === name)?.run(input, new AbortController().signal);
  const agree = async (state: string, states: object): Promise<void> => {
    t.match(await details('shop/cart:http'), [{ state, problems: [problem] }]);
    t.match(await ask('services', { search: 'cart:http', limit: '1' }), {
      states,
      rows: [{ name: 'shop/cart:http', state }],
    });
    t.match(await ask('status'), { proxy: { states } });
  };
  await agree('degraded', { ok: 1, degraded: 1, down: 1 });
  t.match(await ask('services', { state: 'problems' }), { matched: 3 });
  await scene.proxier.drain({ kind: 'endpoint', endpoint: '10.1.0.1:80' });
  await agree('down', { ok: 1, degraded: 0, down: 2 });
});

t.test('no answer reads more service ports in one turn than a part has', async (t) => {
  const many = 20 * PER_PART;
  const scene = new AdminScene(
    Array.from({ length: many }, (_, n) => {
      return { name: `d/service-${n}`, address: '10.96.0.1', endpoints: ['10.1.0.1:80'] };
    }),
  );
  const { sampler } = sceneViews(scene, 0);
  const { engine } = scene;
  const snapshot = engine.snapshot.bind(engine);
  let [inThisTurn, most, turns] = [0, 0, 0];
  engine.snapshot = (names) => {
    inThisTurn += names?.size ?? many;
    most = Math.max(most, inThisTurn);
    return snapshot(names);
  };
  const turn = (): void => {
    inThisTurn = 0;
    turns += 1;
    next = setImmediate(turn);
  };
  let next = setImmediate(turn);
  t.teardown(() => clearImmediate(next));
  for (const [name, input, expected] of [
    ['status', {}, { proxy: { servicePorts: many } }],
    ['services', { limit: '1000', sort: 'active' }, { total: many }],
    ['services', { search: 'service-42' }, { total: many }],
    ['dump', {}, { services: { length: many } }],
  ] as const) {
    [most, turns] = [0, 0];
    const operation = standardOperations(scene.subject, sampler).find((each) => each.name === name);
    const result = await operation?.run(input, new AbortController().signal);
    const answer = name === 'dump' ? JSON.parse(await text(result as Readable)) : result;
    t.match(answer, expected);
    t.ok(most <= 2 * PER_PART, `${name}: ${most} in one turn`);
    t.ok(turns >= many / PER_PART, `${name}: ${turns} turns`);
  }
});
