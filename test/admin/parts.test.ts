/** Others have their turn while the state of very many service ports is gathered. */
import t from 'tap';
import { PER_PART } from '../../src/observe/parts.ts';
import { Sampler } from '../../src/admin/sampler.ts';
import { standardOperations } from '../../src/admin/standard.ts';
import { AdminScene, type SceneService } from '../support/admin-scene.ts';

const MANY = 20 * PER_PART;

function service(number: number): SceneService {
  return {
    name: `d/service-${number}:http`,
    address: `10.96.${number >> 8}.${number & 255}`,
    endpoints: ['10.1.0.1:80'],
  };
}

t.test('no answer looks at more service ports in one turn than a part has', async (t) => {
  const scene = await AdminScene.create(Array.from({ length: MANY }, (_, n) => service(n)));
  const { engine } = scene;
  const snapshot = engine.snapshot.bind(engine);
  let inThisTurn = 0;
  let most = 0;
  let turns = 0;
  engine.snapshot = (names) => {
    inThisTurn += names?.size ?? MANY;
    most = Math.max(most, inThisTurn);
    return snapshot(names);
  };
  engine.names = () => Array.from({ length: MANY }, (_, n) => service(n).name);
  const sampler = new Sampler({ clock: scene.clock, snapshot: () => [] });
  const operations = standardOperations(scene.subject, sampler);
  let watching = true;
  const turn = (): void => {
    inThisTurn = 0;
    turns += 1;
    if (watching) setImmediate(turn);
  };
  setImmediate(turn);
  t.teardown(() => (watching = false));
  for (const [name, input] of [
    ['status', {}],
    ['services', { limit: '1000', sort: 'active' }],
    ['services', { search: 'service-42' }],
    ['dump', {}],
  ] as const) {
    [most, turns] = [0, 0];
    const result = await operations
      .find((each) => each.name === name)
      ?.run(input, new AbortController().signal);
    let text = '';
    if (name === 'dump') for await (const piece of result as AsyncIterable<string>) text += piece;
    if (name === 'dump') t.equal(JSON.parse(text).services.length, MANY);
    else t.match(result, name === 'status' ? { proxy: { servicePorts: MANY } } : { total: MANY });
    t.ok(most <= 2 * PER_PART, `${name}: ${most} in one turn`);
    t.ok(turns >= MANY / PER_PART, `${name}: ${turns} turns`);
  }
});
