import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createEngine } from '../../src/cli/sinks/userspace-engine.ts';
import { CrashBreaker } from '../../src/proxysocket/linux/breaker.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { order } from '../support/crashing-order.ts';
import { captureLog } from '../support/captured-log.ts';
import { linuxTest } from '../support/linux-sys.ts';

const module = new URL('../support/crashing-worker.ts', import.meta.url);
const limits = DEFAULT_LIMITS;

async function setUp(t: Test) {
  const path = join(t.testdir(), 'runs.json');
  const { log, lines } = await captureLog();
  order(0);
  return { path, log, lines, guard: { module, breaker: new CrashBreaker({ path }) } };
}

linuxTest('auto: linux where its probes pass, and the log says so', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  const engine = await createEngine({ engine: 'auto', limits }, {}, log, guard);
  t.equal(engine.kind, 'linux');
  t.match(lines(), [{ msg: 'Chose --engine linux' }]);
  t.ok(existsSync(path), 'should it die now, the next run will know');
  await engine.destroy();
  t.notOk(existsSync(path), 'it did not');
});

linuxTest('auto: node where a probe fails, and the log names it', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  order(2);
  const engine = await createEngine({ engine: 'auto', limits }, {}, log, guard);
  t.equal(engine.kind, 'node');
  t.match(lines(), [{ msg: 'Chose --engine node', reason: 'weather: it rains' }]);
  t.equal(lines().length, 1);
  t.notOk(existsSync(path));
  await engine.destroy();
});

linuxTest('auto: node after the engine has died young twice', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  const at = Date.now();
  writeFileSync(path, JSON.stringify([2 ** 22 + 1, 2 ** 22 + 2].map((pid) => ({ pid, at }))));
  const engine = await createEngine({ engine: 'auto', limits }, {}, log, guard);
  t.equal(engine.kind, 'node');
  t.match(lines(), [{ reason: /^crash-loop: the last 2 runs with it died young/ }]);
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
