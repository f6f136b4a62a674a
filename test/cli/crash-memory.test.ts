import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CrashMemory, type ProcessFacts } from '../../src/cli/sinks/crash-memory.ts';
import { linuxTest } from '../support/linux-sys.ts';

/** Processes that come and go on a machine, and what they leave for the next one. */
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
    start(as = pid + 1, instance = 'one'): CrashMemory {
      pid = as;
      ticks += 1;
      starts.set(pid, ticks);
      return new CrashMemory({ instance, folder, pid, now: () => state.now, facts });
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

t.test('the ends of another instance do not count', (t) => {
  const machine = host(t);
  for (let count = 0; count < 3; count += 1) machine.crash(undefined, 'other');
  t.equal(machine.start(undefined, 'other').isOpen(), true);
  t.equal(machine.start(undefined, 'one').crashes(), 0);
  t.end();
});

t.test('a process that still probes is not taken for dead', (t) => {
  const machine = host(t);
  machine.start().begin();
  t.equal(machine.start().crashes(), 0);
  t.end();
});

t.test(
  'a process of a container, which always has the same number, is not taken for itself',
  (t) => {
    const machine = host(t);
    for (let count = 0; count < 3; count += 1) machine.crash(1);
    t.equal(machine.start(1).crashes(), 3);
    t.end();
  },
);

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

t.test('what cannot be read or written is no memory, and no harm', (t) => {
  const machine = host(t);
  mkdirSync(machine.folder, { mode: 0o700 });
  for (const text of ['', '{}', '[]', '{"crashes": 3, "at": 1}', 'null']) {
    writeFileSync(machine.start().path, text);
    t.equal(machine.start().crashes(), 0, text);
  }
  const file = join(t.testdirName, 'there');
  writeFileSync(file, '');
  for (const folder of [file, join(t.testdirName, 'missing', 'folder')]) {
    const memory = new CrashMemory({ instance: 'one', folder });
    memory.begin();
    t.equal(memory.isOpen(), false);
    memory.end();
  }
  t.end();
});

linuxTest('a folder that others may write to, or have put there, is not believed', async (t) => {
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
  const begun = new CrashMemory({ instance: 'one', folder, pid: child.pid ?? 0 });
  begun.begin();
  t.ok(existsSync(begun.path));
  const next = new CrashMemory({ instance: 'one', folder });
  t.equal(next.crashes(), 0);
  child.kill('SIGSEGV');
  await once(child, 'exit');
  t.equal(next.crashes(), 1);
  next.begin();
  next.end();
  t.notOk(existsSync(begun.path));
  t.match(
    new CrashMemory({ instance: 'one' }).path,
    /kpng-userspace-linux-engine\.\d+\/\w+\.json$/,
  );
});
