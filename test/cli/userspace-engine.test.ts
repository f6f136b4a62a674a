import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createEngine } from '../../src/cli/sinks/userspace-engine.ts';
import { CrashMemory, linuxFacts } from '../../src/cli/sinks/crash-memory.ts';
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
  return { path, log, lines, guard: { module, crashFolder: path } };
}

linuxTest('auto: linux where its probes pass, and the log says so', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  const engine = await createEngine({ engine: 'auto', limits, instance: 'one' }, {}, log, guard);
  t.equal(engine.kind, 'linux');
  t.match(lines(), [{ msg: 'Chose --engine linux' }]);
  t.strictSame(readdirSync(path), [], 'it has outlived the probes');
  await engine.destroy();
});

linuxTest('auto: node where a probe fails, and the log names it', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  order(2);
  const engine = await createEngine({ engine: 'auto', limits, instance: 'one' }, {}, log, guard);
  t.equal(engine.kind, 'node');
  t.match(lines(), [{ msg: 'Chose --engine node', reason: 'weather: it rains' }]);
  t.equal(lines().length, 1);
  t.strictSame(readdirSync(path), []);
  await engine.destroy();
});

/** Leaves what starts do that crash in their probes. */
function crash(folder: string, times: number): void {
  for (let pid = 2 ** 22 + 1; pid <= 2 ** 22 + times; pid += 1) {
    // It has that number as long as it lives.
    const facts = { ...linuxFacts, startOf: (each: number) => (each === pid ? pid : undefined) };
    new CrashMemory({ instance: 'one', folder, pid, facts }).begin();
  }
}

linuxTest(
  'auto: node after three starts have crashed, and the log says how to reset that',
  async (t) => {
    const { path, log, lines, guard } = await setUp(t);
    crash(path, 3);
    const engine = await createEngine({ engine: 'auto', limits, instance: 'one' }, {}, log, guard);
    t.equal(engine.kind, 'node');
    t.match(lines(), [
      { reason: /^crash-loop: the last 3 starts .*; remove .*\.json to try it again/ },
    ]);
    await engine.close();
    const other = await createEngine({ engine: 'auto', limits, instance: 'two' }, {}, log, guard);
    t.equal(other.kind, 'linux', 'another instance is not concerned');
    await other.close();
  },
);

linuxTest('linux: tried all the same after crashes, and the log says so', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  crash(path, 3);
  const engine = await createEngine({ engine: 'linux', limits, instance: 'one' }, {}, log, guard);
  t.equal(engine.kind, 'linux');
  t.match(lines(), [{ level: 'warn', crashes: 3 }]);
  await engine.close();
});

linuxTest('linux: an error where a probe fails', async (t) => {
  const { log, lines, guard } = await setUp(t);
  order(2);
  await t.rejects(createEngine({ engine: 'linux', limits, instance: 'one' }, {}, log, guard), {
    code: 'KPNG_ENGINE_UNFIT',
    message: '--engine linux cannot work here: weather: it rains',
  });
  order(0);
  const engine = await createEngine({ engine: 'linux', limits, instance: 'one' }, {}, log, guard);
  t.equal(engine.kind, 'linux');
  t.same(lines(), [], 'nothing was chosen');
  await engine.close();
});

t.test('node: nothing else is asked', async (t) => {
  const { path, log, lines, guard } = await setUp(t);
  const engine = await createEngine({ engine: 'node', limits, instance: 'one' }, {}, log, guard);
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
    const engine = await createEngine({ engine: 'node', limits, instance: 'one' }, {}, log, seams);
    t.match(lines(), [expected]);
    t.equal(lines().length, 1);
    await engine.destroy();
  }
});

linuxTest('linux: node carries on in the same process when its threads keep dying', async (t) => {
  const { log, guard } = await setUp(t);
  const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };
  const engine = await createEngine({ engine: 'linux', limits, instance: 'one' }, {}, log, {
    ...guard,
    backoff,
  });
  t.teardown(() => engine.destroy());
  for (let deaths = 0; deaths < 3; deaths += 1) {
    t.equal(engine.kind, 'linux');
    order(1);
    await engine.apply([]);
  }
  t.equal(engine.kind, 'node');
});

t.test('node: more workers than one are a warning, and the main thread carries on', async (t) => {
  const { log, lines } = await setUp(t);
  const options = { engine: 'node', workers: 2, limits, instance: 'one' } as const;
  const engine = await createEngine(options, {}, log);
  t.equal(engine.kind, 'node');
  t.match(lines(), [{ level: 'warn', msg: /^--workers needs the linux engine/, workers: 2 }]);
  await engine.destroy();
});

t.test('auto: node on other systems', async (t) => {
  const { log, lines } = await setUp(t);
  const options = { engine: 'auto', limits, instance: 'one' } as const;
  const engine = await createEngine(options, {}, log, { platform: 'win32' });
  t.equal(engine.kind, 'node');
  t.match(lines(), [{ msg: 'Chose --engine node', reason: 'platform: this is win32' }]);
  await engine.destroy();
});

linuxTest('linux: several workers', async (t) => {
  const { log, lines, guard } = await setUp(t);
  const options = { engine: 'linux', workers: 2, limits, instance: 'one' } as const;
  const engine = await createEngine(options, {}, log, guard);
  t.equal(engine.kind, 'linux');
  t.same(lines(), []);
  await engine.destroy();
});
