import { execFileSync } from 'node:child_process';
import { watch } from 'node:fs';
import { mkdir, open, rename, rm, symlink, utimes, writeFile, appendFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { DEFAULT_FILE_LIMITS, type FileLimits } from '../../src/file/limits.ts';
import { STATE_FILE } from '../../src/file/source.ts';
import { systemClock, type Clock } from '../../src/util/clock.ts';
import { watchFile } from '../../src/util/file-watcher.ts';
import { renameOver } from '../../src/util/atomic-file.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { put } from '../support/file-rig.ts';
import { NO_LINKS } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

const WINDOWS = process.platform === 'win32';

/** Follows a file and notes everything that is reported to it. */
function follow(
  t: Test,
  path: string,
  clock: Clock = systemClock,
  given: Partial<FileLimits> = {},
) {
  // Without polling, what comes came by an event; Wine has few events.
  const usual = { ...DEFAULT_FILE_LIMITS, settleMs: 10, pollMs: WINDOWS ? 500 : 600_000 };
  const limits = { ...usual, ...given };
  const contents: string[] = [];
  const errors: string[] = [];
  const watcher = watchFile({
    path,
    kind: STATE_FILE,
    limits,
    clock,
    onContent: (bytes) => contents.push(Buffer.from(bytes).toString()),
    onError: (error) => errors.push(`${error.code}: ${error.message}`),
    onRecovered: () => undefined,
  });
  t.teardown(() => watcher.close());
  return {
    watcher,
    limits,
    contents,
    errors,
    /** Waits for the newest content to be this one. */
    comesTo: (text: string) => until(() => contents.at(-1) === text),
    failed: () => until(() => errors.length > 0),
  };
}

t.test('an error is reported once, however often the file is read in vain', async (t) => {
  const path = join(t.testdir({ 'state.yaml': {} }), 'state.yaml');
  const clock = new FakeClock();
  const { errors, watcher } = follow(t, path, clock, { pollMs: 500 });
  await until(() => errors.length === 1 && clock.pending === 1);
  // Two checks find another modification time, and it is read; the third finds nothing new.
  for (let round = 1; round <= 9; round += 1) {
    if (round % 3 === 1) await utimes(path, 1, round);
    clock.advance(500);
    await until(() => clock.pending === 1);
  }
  t.match(errors, [/it is a directory$/]);
  t.equal(errors.length, 1);
  watcher.again();
  await until(() => {
    clock.advance(10);
    return errors.length === 2;
  });
});

t.test('a failure that leaves no trace at the file, such as a lack of descriptors', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const few = { pollMs: 10, maxFileBytes: 1 };
  const { comesTo, failed, limits } = follow(t, path, systemClock, few);
  await failed();
  Object.assign(limits, { maxFileBytes: 10 });
  await comesTo('one');
});

t.test('a file that is written in place, or moved away as a backup', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const { comesTo, errors } = follow(t, path);
  await comesTo('one');
  for (const text of ['two', 'six']) {
    await writeFile(path, text);
    await comesTo(text);
  }
  t.strictSame(errors, []);
  await renameOver(path, `${path}~`);
  await writeFile(path, 'seven');
  await comesTo('seven');
});

t.test('a ConfigMap volume: the kubelet swaps the link ..data', { skip: NO_LINKS }, async (t) => {
  const dir = t.testdir({ '..1': { 'state.yaml': 'one' } });
  await symlink('..1', join(dir, '..data'));
  await symlink('..data/state.yaml', join(dir, 'state.yaml'));
  const { comesTo, contents, errors } = follow(t, join(dir, 'state.yaml'));
  await comesTo('one');
  for (const [former, next, text] of [
    ['..1', '..2', 'two'],
    ['..2', '..3', 'three'],
  ] as const) {
    await mkdir(join(dir, next));
    await writeFile(join(dir, next, 'state.yaml'), text);
    await symlink(next, join(dir, '..data_tmp'));
    await rename(join(dir, '..data_tmp'), join(dir, '..data'));
    await rm(join(dir, former), { recursive: true });
    await comesTo(text);
  }
  t.strictSame(contents, ['one', 'two', 'three']);
  t.strictSame(errors, []);
});

const NO_WINDOWS = WINDOWS && 'only on linux';
t.test('events cause checks, 10 ms apart; each watch ends', { skip: NO_WINDOWS }, async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const any = watch(path);
  any.close();
  const prototype = Object.getPrototypeOf(any) as typeof any;
  const closed = t.capture(prototype, 'close', Reflect.get(prototype, 'close'));
  const clock = new FakeClock();
  const { contents, limits } = follow(t, path, clock);
  await until(() => contents.length === 1 && clock.pending === 1);
  await writeFile(path, 'two');
  await until(() => closed().length === 1);
  while (contents.length === 1) {
    await until(() => clock.pending === 1);
    clock.advance(1);
  }
  t.ok(clock.now() >= 10 + limits.settleMs, `${clock.now()} ms`);
});

// To Windows a path through a file is a path to nothing.
const THROUGH_FILE = WINDOWS ? /no such file \(ENOENT\)$/ : /is not a directory \(ENOTDIR\)$/;

for (const [what, make, error, skip = false] of [
  ['a folder that does not exist yet', (path) => rm(dirname(path), { recursive: true }), /ENOENT/],
  ['a directory', (path) => mkdir(path), /the state file \S+: it is a directory$/],
  ['circular links', (path) => symlink('state.yaml', path), /ELOOP/, NO_LINKS],
  [
    'a file instead of a folder',
    async (path) => {
      await rm(dirname(path), { recursive: true });
      await writeFile(dirname(path), '');
    },
    THROUGH_FILE,
  ],
  // Opening it must not block, either.
  [
    'a named pipe',
    (path) => execFileSync('mkfifo', [path]),
    /it is not a regular file$/,
    NO_WINDOWS,
  ],
] as [string, (path: string) => unknown, RegExp, (string | boolean)?][]) {
  t.test(`${what} cannot be read until it is replaced by a file`, { skip }, async (t) => {
    const folder = join(t.testdir({ folder: {}, next: { 'state.yaml': 'two' } }), 'folder');
    const path = join(folder, 'state.yaml');
    await make(path);
    const { comesTo, failed, errors } = follow(t, path, systemClock, { pollMs: 100 });
    await failed();
    t.match(errors[0], error);
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder);
    await writeFile(path, 'one');
    await comesTo('one');
    await rename(folder, `${folder}-before`);
    await rename(join(folder, '..', 'next'), folder);
    await comesTo('two');
  });
}

t.test('a file that is being written is read when it is quiet', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'start' }), 'state.yaml');
  const clock = new FakeClock();
  const { comesTo, contents } = follow(t, path, clock);
  await comesTo('start');
  t.equal(clock.now(), 0, 'the first content needs no time');
  await put(path, 'start');
  for (let checks = 0; checks < 3; checks += 1) {
    await until(() => clock.pending === 1);
    clock.advance(600_000);
  }
  // The last check is over, too: it could be late enough to read a file that is being written.
  await until(() => clock.pending === 1);
  const handle = await open(path, 'w');
  await handle.write('half');
  await until(() => clock.pending === 1);
  t.pass('the change was noticed, and waits for quiet');
  await handle.write(' and whole');
  await handle.close();
  await until(() => {
    clock.advance(1);
    return contents.length > 1;
  });
  t.strictSame(contents, ['start', 'half and whole'], 'not what leaves it unchanged');
});

t.test('a file that grows while it is read is read again', async (t) => {
  const path = join(t.testdir({}), 'state.yaml');
  const large = 4 * 1024 * 1024;
  await writeFile(path, Buffer.alloc(large));
  const handle = await open(path, 'a');
  const { contents } = follow(t, path);
  const start = performance.now();
  for (let n = 0; n < 100 || performance.now() - start < 50; n += 1) await handle.write('x');
  const { size } = await handle.stat();
  await handle.close();
  await until(() => contents.length > 0);
  t.equal(contents[0]?.length, size);
});

t.test('after close nothing is reported, not even what is being read', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const clock = new FakeClock();
  const closed = follow(t, path, clock);
  closed.watcher.close();
  const { comesTo } = follow(t, path);
  await comesTo('one');
  await put(path, 'two');
  await comesTo('two');
  t.strictSame(closed.contents, []);
  t.equal(clock.pending, 0);
});

t.test('a file that is never quiet is read after a second all the same', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const clock = new FakeClock();
  const { contents } = follow(t, path, clock, DEFAULT_FILE_LIMITS);
  await until(() => contents.length === 1 && clock.pending === 1);
  await appendFile(path, '.');
  const start = clock.now();
  while (contents.length === 1) {
    await appendFile(path, '.');
    const { pending } = clock;
    clock.advance(20);
    await until(() => clock.pending >= pending || contents.length > 1);
  }
  t.ok(clock.now() - start >= DEFAULT_FILE_LIMITS.maxSettleMs, `${clock.now() - start} ms`);
});
