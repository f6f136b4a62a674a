import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createEngine } from '../../src/cli/sinks/userspace-engine.ts';
import { CrashBreaker } from '../../src/proxysocket/linux/breaker.ts';
import { linuxFacts } from '../../src/proxysocket/linux/process-facts.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { order } from '../support/crashing-order.ts';
import { captureLog } from '../support/captured-log.ts';
import { linuxTest } from '../support/linux-sys.ts';

const module = new URL('../support/crashing-worker.ts', import.meta.url);
const limits = DEFAULT_LIMITS;

async function setUp(t: Test) {
  const path = join(t.testdir(), 'runs');
  const { log, lines } = await captureLog();
  order(0);
  return { path, log, lines, guard: { module, breaker: new CrashBreaker({ path }) } };
}

linuxTest('auto: linux where its probes pass, and the log says so', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  const engine = await createEngine({ engine: 'auto', limits }, {}, log, guard);
  t.equal(engine.kind, 'linux');
  t.match(lines(), [{ msg: 'Chose --engine linux' }]);
  t.equal(readdirSync(path).length, 1, 'should it die now, the next run will know');
  await engine.destroy();
  t.strictSame(readdirSync(path), [], 'it did not');
});

linuxTest('auto: node where a probe fails, and the log names it', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  order(2);
  const engine = await createEngine({ engine: 'auto', limits }, {}, log, guard);
  t.equal(engine.kind, 'node');
  t.match(lines(), [{ msg: 'Chose --engine node', reason: 'weather: it rains' }]);
  t.equal(lines().length, 1);
  t.strictSame(readdirSync(path), []);
  await engine.destroy();
});

/** Leaves what runs do that died young. */
function dieYoung(path: string, times: number): void {
  for (let pid = 2 ** 22 + 1; pid <= 2 ** 22 + times; pid += 1) {
    new CrashBreaker({ path, pid, facts: { ...linuxFacts, startOf: () => pid } }).begin();
  }
}

linuxTest('auto: node after the engine has died young three times', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  dieYoung(path, 3);
  const engine = await createEngine({ engine: 'auto', limits }, {}, log, guard);
  t.equal(engine.kind, 'node');
  t.match(lines(), [{ reason: /^crash-loop: the last 3 runs with it died young/ }]);
  await engine.close();
});

linuxTest('linux: tried all the same after it has died young, and the log says so', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  dieYoung(path, 3);
  const engine = await createEngine({ engine: 'linux', limits }, {}, log, guard);
  t.equal(engine.kind, 'linux');
  t.match(lines(), [{ level: 'warn', deaths: 3, path }]);
  await engine.close();
});

linuxTest('linux: an error where a probe fails', async (t) => {
  const { log, lines, guard } = await setUp(t);
  order(2);
  await t.rejects(createEngine({ engine: 'linux', limits }, {}, log, guard), {
    code: 'KPNG_ENGINE_UNFIT',
    message: '--engine linux cannot work here: weather: it rains',
  });
  order(0);
  const engine = await createEngine({ engine: 'linux', limits }, {}, log, guard);
  t.equal(engine.kind, 'linux');
  t.same(lines(), [], 'nothing was chosen');
  await engine.close();
});

t.test('node: nothing else is asked', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  const engine = await createEngine({ engine: 'node', limits }, {}, log, guard);
  t.equal(engine.kind, 'node');
  t.same(lines(), []);
  t.notOk(existsSync(path));
  await engine.destroy();
});

t.test('node: the log says how it relays', async (t) => {
  for (const [canAcceptWithOnread, expected] of [
    [undefined, { msg: 'The node engine reads clients into its own buffers' }],
    [async () => false, { level: 'info', msg: /^The node engine uses only documented functions/ }],
  ] as const) {
    const { log, lines } = await captureLog(4);
    const seams = canAcceptWithOnread === undefined ? {} : { canAcceptWithOnread };
    const engine = await createEngine({ engine: 'node', limits }, {}, log, {}, seams);
    t.match(lines(), [expected]);
    t.equal(lines().length, 1);
    await engine.destroy();
  }
});

linuxTest('linux: node carries on in the same process when its threads keep dying', async (t) => {
  const { log, guard } = await setUp(t);
  const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };
  const engine = await createEngine({ engine: 'linux', limits }, {}, log, { ...guard, backoff });
  t.teardown(() => engine.destroy());
  for (let deaths = 0; deaths < 3; deaths += 1) {
    t.equal(engine.kind, 'linux');
    order(1);
    await engine.apply([]);
  }
  t.equal(engine.kind, 'node');
});

linuxTest('node: several workers, and one where they cannot share ports', async (t) => {
  const { log, lines, guard } = await setUp(t);
  const node = { engine: 'node', workers: 2, limits } as const;
  const nodeWorkers = { module: new URL('../support/crashing-node-worker.ts', import.meta.url) };
  const several = await createEngine(node, {}, log, guard, { nodeWorkers });
  t.equal(several.constructor.name, 'SharedEngine');
  t.equal(several.kind, 'node');
  t.same(lines(), []);
  await several.destroy();
  order(2);
  const one = await createEngine(node, {}, log, guard, { nodeWorkers });
  order(0);
  t.equal(one.kind, 'node');
  t.match(lines(), [{ msg: 'Chose --workers 1', reason: 'weather: it rains' }]);
  await one.destroy();
});

t.test('node: workers that fail to start are a warning, and one carries on', async (t) => {
  const { log, lines, guard } = await setUp(t);
  const node = { engine: 'node', workers: 2, limits } as const;
  const nodeWorkers = { module: new URL('no-such-worker.ts', import.meta.url) };
  const one = await createEngine(node, {}, log, guard, { nodeWorkers });
  t.equal(one.kind, 'node');
  t.match(lines(), [{ level: 'warn', err: /no-such-worker/ }]);
  t.equal(lines().length, 1);
  await one.destroy();
});
