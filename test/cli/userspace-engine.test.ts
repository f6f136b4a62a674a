import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  readdirSync,
  chmodSync,
  mkdirSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CrashHistory, linuxFacts, type ProcessFacts } from '../../src/cli/sinks/crash-history.ts';
import { createEngine } from '../../src/cli/sinks/userspace-engine.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { captureLog } from '../support/captured-log.ts';
import { order } from '../support/crashing-worker.ts';
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
    new CrashHistory({ instance: 'one', folder, pid, facts }).begin();
  }
}

linuxTest(
  'auto: node after three starts have crashed, and the log says how to reset that',
  async (t) => {
    const { path, log, lines, guard } = await setUp(t);
    crash(path, 3);
    const engine = await createEngine({ engine: 'auto', limits, instance: 'one' }, {}, log, guard);
    t.equal(engine.kind, 'node');
    t.match(lines(), [{ reason: /^crash-loop: the last 3 starts .*; remove .*\.json to retry/ }]);
    await engine.close();
    const other = await createEngine({ engine: 'auto', limits, instance: 'two' }, {}, log, guard);
    t.equal(other.kind, 'linux', 'another instance is not concerned');
    await other.close();
  },
);

linuxTest('linux: used even after crashes, with a log line', async (t) => {
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

t.test('node: nothing is probed', async (t) => {
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

/** Consecutive processes on a machine, and what each leaves for the next. */
function host(t: Test) {
  const folder = join(t.testdir(), 'runs');
  const starts = new Map<number, number>();
  const state = { now: 1_000_000, boot: 'first', oomKills: 0 };
  let [pid, ticks] = [100, 5000];
  const facts: ProcessFacts = {
    bootId: () => state.boot,
    oomKills: () => state.oomKills,
    startOf: (each) => starts.get(each),
  };
  return {
    folder,
    state,
    start(as = pid + 1, instance = 'one'): CrashHistory {
      pid = as;
      ticks += 1;
      starts.set(pid, ticks);
      return new CrashHistory({ instance, folder, pid, now: () => state.now, facts });
    },
    die: () => starts.delete(pid),
    /** A start that crashes in the probes. */
    crash(as?: number, instance?: string): void {
      this.start(as, instance).begin();
      state.now += 1000;
      this.die();
    },
  };
}

t.test('three starts in a row that crash in the probes, and the next one does without', (t) => {
  const machine = host(t);
  for (const crashes of [0, 1, 2]) {
    const memory = machine.start();
    t.equal(memory.crashes(), crashes);
    t.equal(memory.isOpen(), false);
    machine.die();
    machine.crash();
  }
  t.equal(machine.start().isOpen(), true);
  machine.die();
  t.equal(machine.start().isOpen(), true, 'it did not try the engine, and proves nothing');
  machine.state.now += 61 * 60_000;
  t.equal(machine.start().isOpen(), false, 'after an hour there is another chance');
  t.end();
});

t.test('a process that dies after its probes is no crash, however it dies', (t) => {
  const machine = host(t);
  machine.crash();
  machine.crash();
  const memory = machine.start();
  memory.begin();
  memory.end();
  machine.die();
  t.equal(machine.start().crashes(), 0, 'and those before it are forgotten: the probes passed');
  t.strictSame(readdirSync(machine.folder), []);
  t.end();
});

t.test('crashes of another instance do not count', (t) => {
  const machine = host(t);
  for (let count = 0; count < 3; count += 1) machine.crash(undefined, 'other');
  t.equal(machine.start(undefined, 'other').isOpen(), true);
  t.equal(machine.start(undefined, 'one').crashes(), 0);
  t.end();
});

t.test('a process that is still probing does not count as crashed', (t) => {
  const machine = host(t);
  machine.start().begin();
  t.equal(machine.start().crashes(), 0);
  t.end();
});

t.test('a container’s process, which always has the same id, is not mistaken for itself', (t) => {
  const machine = host(t);
  for (let count = 0; count < 3; count += 1) machine.crash(1);
  t.equal(machine.start(1).crashes(), 3);
  t.end();
});

t.test('an OOM kill or the end of the machine is no crash', (t) => {
  const machine = host(t);
  machine.start().begin();
  machine.state.oomKills += 1;
  machine.die();
  t.equal(machine.start().crashes(), 0);
  machine.crash();
  t.equal(machine.start().crashes(), 1, 'what dies later may be one');
  machine.state.boot = 'second';
  t.equal(machine.start().crashes(), 0);
  t.end();
});

t.test('an unreadable or unwritable file is ignored', (t) => {
  const machine = host(t);
  mkdirSync(machine.folder, { mode: 0o700 });
  for (const text of ['', '{}', '[]', '{"crashes": 3, "at": 1}', 'null']) {
    writeFileSync(machine.start().path, text);
    t.equal(machine.start().crashes(), 0, text);
  }
  const file = join(t.testdirName, 'there');
  writeFileSync(file, '');
  for (const folder of [file, join(t.testdirName, 'missing', 'folder')]) {
    const memory = new CrashHistory({ instance: 'one', folder });
    memory.begin();
    t.equal(memory.isOpen(), false);
    memory.end();
  }
  t.end();
});

linuxTest('a folder that others can write to, or created, is ignored', async (t) => {
  const machine = host(t);
  for (let count = 0; count < 3; count += 1) machine.crash();
  t.ok(machine.start().isOpen());
  chmodSync(machine.folder, 0o777);
  t.notOk(machine.start().isOpen());
  chmodSync(machine.folder, 0o700);
  t.ok(machine.start().isOpen());
  const elsewhere = `${machine.folder}-elsewhere`;
  renameSync(machine.folder, elsewhere);
  symlinkSync(elsewhere, machine.folder);
  t.notOk(machine.start().isOpen());
});

linuxTest('real processes: one that lives, and one that was killed in its probes', async (t) => {
  const folder = join(t.testdir(), 'runs');
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
  const begun = new CrashHistory({ instance: 'one', folder, pid: child.pid ?? 0 });
  begun.begin();
  t.ok(existsSync(begun.path));
  const next = new CrashHistory({ instance: 'one', folder });
  t.equal(next.crashes(), 0);
  child.kill('SIGSEGV');
  await once(child, 'exit');
  t.equal(next.crashes(), 1);
  next.begin();
  next.end();
  t.notOk(existsSync(begun.path));
  t.match(
    new CrashHistory({ instance: 'one' }).path,
    /kpng-userspace-linux-engine\.\d+\/\w+\.json$/,
  );
});
