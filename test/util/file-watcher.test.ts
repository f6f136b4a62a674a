import { execFileSync } from 'node:child_process';
import {
  chmod,
  mkdir,
  open,
  rename,
  rm,
  symlink,
  utimes,
  writeFile,
  appendFile,
  stat,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { DEFAULT_FILE_LIMITS, type FileLimits } from '../../src/file/limits.ts';
import { systemClock, type Clock } from '../../src/util/clock.ts';
import { FileWatcher } from '../../src/util/file-watcher.ts';
import { renameOver } from '../../src/util/atomic-file.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { NO_LINKS } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

const KIND = {
  name: 'the file',
  unreadable: 'KPNG_STATE_FILE_READ',
  tooLarge: 'KPNG_STATE_FILE_LIMIT',
} as const;

/** Follows a file and notes everything that is reported to it. */
function follow(
  t: Test,
  path: string,
  clock: Clock = systemClock,
  limits: Partial<FileLimits> = {},
) {
  const contents: string[] = [];
  const errors: string[] = [];
  let recovered = 0;
  const watcher = new FileWatcher({
    path,
    kind: KIND,
    // Polling is slow here, so what comes soon came by an event.
    limits: { ...DEFAULT_FILE_LIMITS, settleMs: 10, pollMs: 500, ...limits },
    clock,
    onContent: (bytes) => contents.push(Buffer.from(bytes).toString()),
    onError: (error) => errors.push(`${error.code}: ${error.message}`),
    onRecovered: () => {
      recovered += 1;
    },
  });
  watcher.start();
  t.teardown(() => watcher.close());
  return {
    watcher,
    contents,
    errors,
    recovered: () => recovered,
    /** Waits for the newest content to be this one. */
    comesTo: (text: string) => until(() => contents.at(-1) === text),
    failed: () => until(() => errors.length > 0),
  };
}

/** Puts another file in the place of one, so that there is no moment with half a content. */
async function replace(path: string, text: string): Promise<void> {
  await writeFile(`${path}.new`, text);
  await renameOver(`${path}.new`, path);
}

t.test('an error is reported once, however often the file is read in vain', async (t) => {
  const path = join(t.testdir({ 'state.yaml': {} }), 'state.yaml');
  const clock = new FakeClock();
  const { errors } = follow(t, path, clock);
  await until(() => errors.length === 1 && clock.pending === 1);
  // Two checks find another modification time, and it is read; the third finds nothing new.
  for (let round = 1; round <= 9; round += 1) {
    if (round % 3 === 1) await utimes(path, 1, round);
    clock.advance(500);
    await until(() => clock.pending === 1);
  }
  t.match(errors, [/it is a directory$/]);
  t.equal(errors.length, 1);
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

t.test('a file in directories that do not exist yet', async (t) => {
  const dir = t.testdir({});
  const path = join(dir, 'etc', 'kpng', 'state.yaml');
  const { comesTo, failed, errors } = follow(t, path);
  await failed();
  await mkdir(join(dir, 'etc'));
  await mkdir(join(dir, 'etc', 'kpng'));
  await writeFile(path, 'one');
  await comesTo('one');
  t.strictSame(errors, [
    `KPNG_STATE_FILE_READ: cannot read the file ${path}: there is no such file (ENOENT)`,
  ]);
});

t.test('the directory is replaced as a whole', async (t) => {
  const dir = t.testdir({ live: { 'state.yaml': 'one' }, next: { 'state.yaml': 'two' } });
  const path = join(dir, 'live', 'state.yaml');
  const { comesTo } = follow(t, path);
  await comesTo('one');
  await rename(join(dir, 'live'), join(dir, 'old'));
  await rename(join(dir, 'next'), join(dir, 'live'));
  await comesTo('two');
});

const WINDOWS = process.platform === 'win32';
// To Windows a path through a file is a path to nothing.
const THROUGH_FILE = WINDOWS ? /no such file \(ENOENT\)$/ : /is not a directory \(ENOTDIR\)$/;

for (const [what, make, error, skip = false] of [
  ['a directory', (path) => mkdir(path), /the file \S+: it is a directory$/],
  ['circular links', (path) => symlink('state.yaml', path), /ELOOP/, NO_LINKS],
  ['a file instead of a directory', (path) => writeFile(dirname(path), ''), THROUGH_FILE],
  // Opening it must not block, either.
  [
    'a named pipe',
    (path) => execFileSync('mkfifo', [path]),
    /it is not a regular file$/,
    WINDOWS && 'only on linux',
  ],
] as [string, (path: string) => unknown, RegExp, (string | boolean)?][]) {
  t.test(`${what} cannot be read until it is replaced by a file`, { skip }, async (t) => {
    const folder = join(t.testdir({}), 'folder');
    const path = join(folder, 'state.yaml');
    if (error !== THROUGH_FILE) await mkdir(folder);
    await make(path);
    const { comesTo, failed, errors } = follow(t, path);
    await failed();
    t.match(errors[0], error);
    await rm(folder, { recursive: true });
    await mkdir(folder);
    await writeFile(path, 'one');
    await comesTo('one');
  });
}

t.test('a file that is being written is read when it is quiet', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'start' }), 'state.yaml');
  const clock = new FakeClock();
  const { comesTo, contents } = follow(t, path, clock);
  await comesTo('start');
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
  t.strictSame(contents, ['start', 'half and whole']);
});

t.test('a write that leaves the content unchanged is not reported', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const { comesTo, contents } = follow(t, path);
  await comesTo('one');
  await utimes(path, 1, 1);
  await chmod(path, 0o600);
  await replace(path, 'one');
  await replace(path, 'two');
  await comesTo('two');
  t.strictSame(contents, ['one', 'two']);
});

t.test('after close nothing is reported', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const clock = new FakeClock();
  const first = follow(t, path, clock);
  const second = follow(t, path);
  await until(() => first.contents.length === 1 && clock.pending === 1);
  first.watcher.close();
  first.watcher.close();
  t.equal(clock.pending, 0);
  await writeFile(path, 'two');
  await second.comesTo('two');
  t.strictSame(first.contents, ['one']);
});

t.test('a change that leaves size and times as they were, right after a read', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  await utimes(path, 1, 1);
  const clock = new FakeClock();
  const { contents } = follow(t, path, clock);
  await until(() => contents.length === 1);
  t.equal(clock.now(), 0, 'the first content needs no time');
  await writeFile(path, 'two');
  await utimes(path, 1, 1);
  t.equal((await stat(path)).size, 3);
  await until(() => {
    clock.advance(10);
    return contents.at(-1) === 'two';
  });
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
