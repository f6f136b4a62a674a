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
import { crashHistory, linuxFacts, type ProcessFacts } from '../../src/cli/sinks/crash-history.ts';
import { createEngine, type EngineOptions } from '../../src/cli/sinks/userspace-engine.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { captureLog } from '../support/captured-log.ts';
import { order } from '../support/crashing-worker.ts';
import { linuxTest } from '../support/linux-sys.ts';

const module = new URL('../support/crashing-worker.ts', import.meta.url);
const limits = DEFAULT_LIMITS;

/** Leaves what starts do that crash in their probes. */
function crash(folder: string, times: number): void {
  for (let pid = 2 ** 22 + 1; pid <= 2 ** 22 + times; pid += 1) {
    // It has that number as long as it lives.
    const facts = { ...linuxFacts, startOf: (each: number) => (each === pid ? pid : undefined) };
    crashHistory({ instance: 'one', folder, pid, facts }).begin();
  }
}

interface Given extends Partial<Omit<EngineOptions, 'limits'>> {
  /** Starts that crashed before. */
  readonly crashes?: number;
  /** Whether a probe fails. */
  readonly fails?: true;
  readonly platform?: NodeJS.Platform;
}

/** `gives`: the engine, or the error. `line`: the one in the log, if any. */
function check(
  name: string,
  given: Given,
  gives: 'linux' | 'node' | { code: string },
  line?: object,
): void {
  linuxTest(name, async (t) => {
    const { crashes = 0, fails, platform = process.platform, ...options } = given;
    const crashFolder = join(t.testdir(), 'runs');
    const { log, lines } = await captureLog();
    crash(crashFolder, crashes);
    order(fails === true ? 2 : 0);
    const all = { engine: 'auto', instance: 'one', limits, ...options } as const;
    const made = createEngine(all, {}, log, { module, crashFolder, platform });
    if (typeof gives === 'string') {
      const started = await made;
      t.equal(started.kind, gives);
      await started.destroy();
    } else {
      await t.rejects(made, gives);
    }
    t.match(lines(), line === undefined ? [] : [line]);
    t.equal(lines().length, line === undefined ? 0 : 1);
    if (crashes === 0 && existsSync(crashFolder)) t.strictSame(readdirSync(crashFolder), []);
    t.equal(
      existsSync(crashFolder),
      crashes > 0 || (all.engine !== 'node' && platform === 'linux'),
    );
  });
}

const rain = 'weather: it rains';
const unfit = { code: 'KPNG_ENGINE_UNFIT', message: `--engine linux cannot work here: ${rain}` };
const crashLoop = /^crash-loop: the last 3 starts .*; remove .*\.json to retry/;
const toLinux = { msg: 'Chose --engine linux' };
const toNode = (reason: string | RegExp) => ({ msg: 'Chose --engine node', reason });
const idle = { level: 'warn', msg: /^--workers needs the linux engine/, workers: 2 };

check('auto: linux where its probes pass', {}, 'linux', toLinux);
check('auto: node where a probe fails, with the probe', { fails: true }, 'node', toNode(rain));
check(
  'auto: node after three crashes, and how to reset',
  { crashes: 3 },
  'node',
  toNode(crashLoop),
);
check('auto: crashes of another instance', { crashes: 3, instance: 'two' }, 'linux', toLinux);
check('auto: other systems', { platform: 'win32' }, 'node', toNode('platform: this is win32'));
check('linux: in spite of crashes', { engine: 'linux', crashes: 3 }, 'linux', { crashes: 3 });
check('linux: a probe fails', { engine: 'linux', fails: true }, unfit);
check('linux: several workers', { engine: 'linux', workers: 2 }, 'linux');
check('node: nothing is probed', { engine: 'node' }, 'node');
check('node: workers are a warning', { engine: 'node', workers: 2 }, 'node', idle);

t.test('node: the log says how it relays', async (t) => {
  for (const [hooks, expected] of [
    [{}, { msg: 'The node engine reads clients into its own buffers' }],
    [
      { canAcceptWithOnread: async () => false },
      { level: 'info', msg: /^The node engine uses only documented functions/ },
    ],
  ] as const) {
    const { log, lines } = await captureLog(4);
    const engine = await createEngine({ engine: 'node', limits, instance: 'one' }, {}, log, hooks);
    t.match(lines(), [expected]);
    t.equal(lines().length, 1);
    await engine.destroy();
  }
});

linuxTest('linux: node carries on in the same process when its threads keep dying', async (t) => {
  const { log } = await captureLog();
  order(0);
  const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };
  const hooks = { module, crashFolder: join(t.testdir(), 'runs'), backoff };
  const engine = await createEngine({ engine: 'linux', limits, instance: 'one' }, {}, log, hooks);
  t.teardown(() => engine.destroy());
  for (let deaths = 0; deaths < 3; deaths += 1) {
    t.equal(engine.kind, 'linux');
    order(1);
    await engine.apply([]);
  }
  t.equal(engine.kind, 'node');
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
  const start = (as = pid + 1, instance = 'one') => {
    pid = as;
    ticks += 1;
    starts.set(pid, ticks);
    return crashHistory({ instance, folder, pid, now: () => state.now, facts });
  };
  const steps = {
    /** A start that crashes in the probes; in a container it always has the same id. */
    crash(): void {
      start(1).begin();
      state.now += 1000;
      starts.delete(1);
    },
    passes(): void {
      const memory = start();
      memory.begin();
      memory.end();
      starts.delete(pid);
    },
    /** It does not try the engine. */
    without: () => void (start() && starts.delete(pid)),
    probing: () => start().begin(),
    dies: () => void starts.delete(pid),
    oomKill: () => void (state.oomKills += 1),
    boot: () => void (state.boot = 'second'),
    hour: () => void (state.now += 61 * 60_000),
  };
  return { folder, start, steps };
}

t.test('crashes in a row are counted until the probes pass, for an hour', async (t) => {
  const rows: [string, number][] = [
    ['', 0],
    ['crash', 1],
    ['crash crash', 2],
    ['crash crash crash', 3],
    ['crash crash crash without', 3],
    ['crash crash crash hour', 0],
    ['crash crash probing', 2],
    ['crash crash passes', 0],
    ['probing dies', 1],
    ['probing oomKill dies', 0],
    ['probing oomKill dies crash', 1],
    ['crash boot', 0],
  ];
  for (const [line, crashes] of rows) {
    await t.test(line, async (t) => {
      const { start, steps } = host(t);
      for (const step of line.split(' ').filter(Boolean)) steps[step as keyof typeof steps]();
      const memory = start();
      t.equal(memory.crashes(), crashes);
      t.equal(memory.isOpen(), crashes === 3);
      t.equal(start(undefined, 'other').crashes(), 0, 'of another instance');
    });
  }
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
    const memory = crashHistory({ instance: 'one', folder });
    memory.begin();
    t.equal(memory.isOpen(), false);
    memory.end();
  }
  t.end();
});

linuxTest('a folder that others can write to, or created, is ignored', async (t) => {
  const machine = host(t);
  for (let count = 0; count < 3; count += 1) machine.steps.crash();
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
  const begun = crashHistory({ instance: 'one', folder, pid: child.pid ?? 0 });
  begun.begin();
  t.ok(existsSync(begun.path));
  const next = crashHistory({ instance: 'one', folder });
  t.equal(next.crashes(), 0);
  child.kill('SIGSEGV');
  await once(child, 'exit');
  t.equal(next.crashes(), 1);
  next.begin();
  next.end();
  t.notOk(existsSync(begun.path));
  t.match(crashHistory({ instance: 'one' }).path, /kpng-userspace-linux-engine\.\d+\/\w+\.json$/);
});
