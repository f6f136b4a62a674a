import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CrashBreaker } from '../../../src/proxysocket/linux/breaker.ts';
import type { ProcessFacts } from '../../../src/proxysocket/linux/process-facts.ts';
import { linuxTest } from '../../support/linux-sys.ts';

/** Processes that come and go on a machine, and what they leave for the next one. */
function host(t: Test) {
  const path = join(t.testdir(), 'runs');
  const starts = new Map<number, number>();
  const state = { now: 1_000_000, boot: 'first', oomKills: 0 };
  let [pid, ticks] = [100, 5000];
  const facts: ProcessFacts = {
    bootId: () => state.boot,
    oomKills: () => state.oomKills,
    startOf: (each) => starts.get(each),
  };
  return {
    path,
    state,
    /** `look`: called whenever it looks at the clock. */
    start(as = pid + 1, look = (): void => undefined): CrashBreaker {
      pid = as;
      ticks += 1;
      starts.set(pid, ticks);
      const now = (): number => {
        look();
        return state.now;
      };
      return new CrashBreaker({ path, pid, now, facts });
    },
    die: () => starts.delete(pid),
    dies: (each: number) => starts.delete(each),
    /** A run that begins and dies after five seconds. */
    lose(as?: number): void {
      this.start(as).begin();
      state.now += 5000;
      this.die();
    },
  };
}

t.test('three runs in a row that die young, and the next one does without', (t) => {
  const machine = host(t);
  for (const deaths of [0, 1, 2]) {
    const breaker = machine.start();
    t.equal(breaker.deaths(), deaths);
    t.equal(breaker.isOpen(), false);
    machine.die();
    machine.lose();
  }
  const breaker = machine.start();
  t.equal(breaker.isOpen(), true);
  // It did not begin with the engine, so it ends nothing and proves nothing.
  machine.die();
  t.equal(machine.start().isOpen(), true);
  machine.state.now += 61 * 60_000;
  t.equal(machine.start().isOpen(), false, 'after an hour there is another chance');
  t.end();
});

t.test(
  'a process of a container, which always has the same number, is not taken for itself',
  (t) => {
    const machine = host(t);
    for (let count = 0; count < 3; count += 1) machine.lose(1);
    const breaker = machine.start(1);
    t.equal(breaker.deaths(), 3);
    breaker.begin();
    t.equal(breaker.deaths(), 3, 'it lives itself');
    t.end();
  },
);

t.test(
  'what memory that had run out, or the end of the machine, may have killed, is no death',
  (t) => {
    const machine = host(t);
    machine.lose();
    machine.start().begin();
    machine.state.oomKills += 1;
    machine.die();
    t.equal(machine.start().deaths(), 0);
    machine.lose();
    t.equal(machine.start().deaths(), 1, 'what dies later may be a crash');
    machine.state.boot = 'second';
    t.equal(machine.start().deaths(), 0);
    t.end();
  },
);

t.test('a program that is started again and again does not fill the memory', (t) => {
  const machine = host(t);
  for (let count = 0; count < 100; count += 1) machine.lose();
  t.equal(readdirSync(machine.path).length, 32);
  t.equal(machine.start().isOpen(), true);
  t.end();
});

t.test('a run that lasts ends a row of deaths', (t) => {
  const machine = host(t);
  machine.lose();
  machine.lose();
  const lasting = machine.start();
  lasting.begin();
  lasting.lasted();
  t.strictSame(readdirSync(machine.path), [], 'nothing is left');
  machine.die();
  machine.lose();
  t.equal(machine.start().deaths(), 1);
  t.end();
});

t.test('a run that ends as it should is no death, and does not end a row', (t) => {
  const machine = host(t);
  machine.lose();
  const breaker = machine.start();
  breaker.begin();
  breaker.end();
  machine.die();
  t.equal(machine.start().deaths(), 1);
  t.end();
});

t.test('others that run at the same time are not taken for dead', (t) => {
  const machine = host(t);
  for (let count = 0; count < 3; count += 1) machine.start().begin();
  const breaker = machine.start();
  t.equal(breaker.deaths(), 0);
  breaker.begin();
  breaker.lasted();
  t.equal(readdirSync(machine.path).length, 3, 'nor forgotten');
  t.end();
});

t.test('runs that begin and end at the same time do not lose each other’s notes', (t) => {
  const machine = host(t);
  machine.lose();
  // While one of them is about to note itself, another one does.
  const between = { action: (): void => undefined };
  const late = machine.start(201);
  const first = machine.start(202, () => {
    between.action();
    between.action = () => undefined;
  });
  between.action = () => late.begin();
  first.begin();
  between.action = () => late.end();
  first.end();
  t.equal(readdirSync(machine.path).length, 1, 'that of the one that died');
  between.action = () => late.begin();
  first.begin();
  t.equal(readdirSync(machine.path).length, 3);
  machine.dies(201);
  machine.dies(202);
  t.equal(machine.start().deaths(), 3);
  t.end();
});

t.test('what cannot be read or written is no memory, and no harm', (t) => {
  const machine = host(t);
  mkdirSync(machine.path);
  for (const name of ['note', '1.2.3.4', 'x.2.3.4.first', '999999.1.2.0.first/']) {
    writeFileSync(join(machine.path, name.replace('/', '.more.')), '');
    t.equal(machine.start().deaths(), 0, name);
  }
  const file = join(t.testdirName, 'there');
  writeFileSync(file, '');
  for (const path of [file, join(t.testdirName, 'missing', 'folder')]) {
    const breaker = new CrashBreaker({ path });
    breaker.begin();
    t.equal(breaker.isOpen(), false);
    breaker.lasted();
    breaker.end();
  }
  t.end();
});

linuxTest('a folder that others may write to, or have put there, is not believed', async (t) => {
  const machine = host(t);
  for (let count = 0; count < 3; count += 1) machine.lose();
  t.ok(machine.start().isOpen());
  chmodSync(machine.path, 0o777);
  t.notOk(machine.start().isOpen());
  machine.start().begin();
  t.equal(readdirSync(machine.path).length, 3, 'nothing is noted there');
  chmodSync(machine.path, 0o700);
  t.ok(machine.start().isOpen());
  const elsewhere = `${machine.path}-elsewhere`;
  renameSync(machine.path, elsewhere);
  symlinkSync(elsewhere, machine.path);
  t.notOk(machine.start().isOpen());
  machine.start().begin();
  t.equal(readdirSync(elsewhere).length, 3);
});

linuxTest('real processes: this one lives, and those that have ended do not', async (t) => {
  const path = join(t.testdir(), 'runs');
  const breaker = new CrashBreaker({ path });
  breaker.begin();
  t.equal(readdirSync(path).length, 1);
  t.equal(new CrashBreaker({ path, pid: process.ppid }).deaths(), 0);
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
  const begun = new CrashBreaker({ path, pid: child.pid ?? 0 });
  begun.begin();
  t.equal(breaker.deaths(), 0);
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.equal(breaker.deaths(), 1);
  t.match(new CrashBreaker().path, /kpng-userspace-linux-engine\.\d+$/);
});
