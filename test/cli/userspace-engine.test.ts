import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  utimesSync,
} from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createEngine, type EngineOptions } from '../../src/cli/sinks/userspace-engine.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { crashHistory } from '../../src/proxysocket/linux/crash-history.ts';
import { Sys } from '../../src/proxysocket/linux/sys/sys.ts';
import { captureLog } from '../support/captured-log.ts';
import { order } from '../support/crashing-worker.ts';
import { linuxTest } from '../support/linux-sys.ts';

const module = new URL('../support/crashing-worker.ts', import.meta.url);
const limits = DEFAULT_LIMITS;

/** As a start that is still in its probes. */
function begin(folder: string, instance = 'one', pid = process.pid): void {
  void crashHistory(instance, folder, pid).during(() => new Promise(() => undefined));
  // A crash does not emit it.
  process.off('exit', process.listeners('exit').at(-1) ?? (() => undefined));
}

/** Leaves what starts do that crash in their probes. */
async function crash(folder: string, times: number, instance = 'one'): Promise<void> {
  for (let count = 0; count < times; count += 1) {
    const child = spawn('cat');
    begin(folder, instance, child.pid);
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
}

interface Given extends Partial<Omit<EngineOptions, 'limits'>> {
  /** Starts that crashed before. */
  readonly crashes?: number;
  /** Whether a probe fails. */
  readonly fails?: true;
  readonly platform?: NodeJS.Platform;
  /** Whether the kernel cannot spread clients by address. */
  readonly steerless?: true;
}

/** `gives`: the engine, or the error. `line`: the one in the log, if any. */
function check(
  name: string,
  given: Given,
  gives: 'linux' | 'node' | { code: string },
  line?: object,
): void {
  linuxTest(name, async (t) => {
    const { crashes = 0, fails, platform = process.platform, steerless, ...options } = given;
    const steer = Reflect.get(Sys.prototype, 'steer');
    t.teardown(() => Object.assign(Sys.prototype, { steer }));
    if (steerless) Sys.prototype.steer = () => -1;
    const crashFolder = join(t.testdir(), 'runs');
    const { log, lines } = await captureLog();
    await crash(crashFolder, crashes);
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
const crashLoop = /^crash-loop: the last 3 starts .*; remove .* to retry/;
const toLinux = { msg: 'Chose --engine linux' };
const toNode = (reason: string | RegExp) => ({ msg: 'Chose --engine node', reason });
const THREE = { engine: 'linux', workers: 3 } as const;
const oneWorker = { level: 'warn', msg: /only one worker/, workers: 3 };
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
check('linux: why there is only one worker', { ...THREE, steerless: true }, 'linux', oneWorker);
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
    order(-1);
    await engine.apply([]);
  }
  t.equal(engine.kind, 'node');
});

linuxTest('crashes in a row are counted until the probes pass, for an hour', async (t) => {
  const folder = join(t.testdir(), 'runs');
  const { path, ...history } = crashHistory('one', folder);
  t.equal(history.crashes(), 0);
  for (const expected of [1, 2, 3, 3]) {
    await crash(folder, 1);
    t.equal(history.crashes(), expected);
  }
  t.equal(crashHistory('two', folder).crashes(), 0, 'of another instance');
  begin(folder, 'one', process.ppid);
  t.equal(history.crashes(), 2, 'a process that runs has not crashed');
  begin(folder);
  t.equal(history.crashes(), 2, 'the one before with the same process id has');
  t.equal(statSync(path).mode & 0o777, 0o600);
  const longAgo = Date.now() / 1000 - 61 * 60;
  utimesSync(path, longAgo, longAgo);
  t.equal(history.crashes(), 0);
  await crash(folder, 1);
  t.equal(history.crashes(), 1, 'and begin again after that');
  await history.during(async () => undefined);
  t.equal(history.crashes(), 0);
  t.same(readdirSync(folder), []);
  t.match(crashHistory('one').path, /kpng-userspace-linux-engine\.\d+\/\w+$/);
});

linuxTest('a folder that is not there, or that others can write to, is ignored', async (t) => {
  const folder = join(t.testdir({ there: '' }), 'runs');
  for (const impossible of [join(t.testdirName, 'there'), join(t.testdirName, 'there', 'folder')]) {
    await crash(impossible, 1);
    t.equal(crashHistory('one', impossible).crashes(), 0);
    t.equal(await crashHistory('one', impossible).during(async () => 'passed'), 'passed');
  }
  await crash(folder, 3);
  t.equal(crashHistory('one', folder).crashes(), 3);
  chmodSync(folder, 0o777);
  await crash(folder, 1, 'two');
  t.equal(crashHistory('one', folder).crashes(), 0);
  chmodSync(folder, 0o700);
  t.equal(crashHistory('one', folder).crashes(), 3);
  t.equal(crashHistory('two', folder).crashes(), 0);
  const elsewhere = `${folder}-elsewhere`;
  renameSync(folder, elsewhere);
  symlinkSync(elsewhere, folder);
  t.equal(crashHistory('one', folder).crashes(), 0);
});
