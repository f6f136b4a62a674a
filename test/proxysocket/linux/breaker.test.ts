import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CrashBreaker } from '../../../src/proxysocket/linux/breaker.ts';

/** Processes that come and go, and what they leave for the next one. */
function host(t: Test) {
  const path = join(t.testdir(), 'runs.json');
  const alive = new Set<number>();
  let pid = 100;
  const state = { now: 1_000_000 };
  return {
    path,
    state,
    start(): CrashBreaker {
      pid += 1;
      alive.add(pid);
      return new CrashBreaker({
        path,
        pid,
        now: () => state.now,
        isAlive: (each) => alive.has(each),
      });
    },
    die: () => alive.delete(pid),
  };
}

t.test('two runs in a row that die young, and the next one does without', (t) => {
  const machine = host(t);
  for (const deaths of [0, 1]) {
    const breaker = machine.start();
    t.equal(breaker.deaths(), deaths);
    t.equal(breaker.isOpen(), false);
    breaker.begin();
    machine.state.now += 5000;
    machine.die();
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

t.test('a run that lasts ends a row of deaths', (t) => {
  const machine = host(t);
  machine.start().begin();
  machine.die();
  const lasting = machine.start();
  lasting.begin();
  lasting.lasted();
  t.notOk(existsSync(machine.path), 'nothing is left');
  machine.die();
  machine.start().begin();
  machine.die();
  t.equal(machine.start().isOpen(), false);
  t.end();
});

t.test('a run that ends as it should is no death, and does not end a row', (t) => {
  const machine = host(t);
  machine.start().begin();
  machine.die();
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
  t.equal((JSON.parse(readFileSync(machine.path, 'utf8')) as []).length, 3, 'nor forgotten');
  t.end();
});

t.test('what cannot be read or written is no memory, and no harm', (t) => {
  const machine = host(t);
  for (const text of ['', '{', 'null', '{}', '[1, null, {}, {"pid":"x","at":1}]']) {
    writeFileSync(machine.path, text);
    t.equal(machine.start().deaths(), 0, JSON.stringify(text));
  }
  const directory = join(t.testdirName, 'there');
  mkdirSync(directory);
  for (const path of [directory, join(t.testdirName, 'missing', 'file')]) {
    const breaker = new CrashBreaker({ path });
    breaker.begin();
    t.equal(breaker.isOpen(), false);
    breaker.lasted();
    breaker.end();
  }
  t.end();
});

t.test('real processes: this one is alive, and one that ended is not', (t) => {
  const path = join(t.testdir(), 'runs.json');
  const gone = 2 ** 22 + 1;
  const at = Date.now();
  const runs = [process.ppid, gone, gone + 1].map((pid) => ({ pid, at }));
  writeFileSync(path, JSON.stringify(runs));
  t.equal(new CrashBreaker({ path }).deaths(), 2);
  t.equal(new CrashBreaker({ path }).isOpen(), true);
  t.match(new CrashBreaker().path, /kpng-userspace-linux-engine\.\d+\.json$/);
  t.end();
});
