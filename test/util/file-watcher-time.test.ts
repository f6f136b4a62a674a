import { appendFile, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { FileWatcher } from '../../src/util/file-watcher.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/until.ts';

const KIND = {
  name: 'the file',
  unreadable: 'KPNG_STATE_FILE_READ',
  tooLarge: 'KPNG_STATE_FILE_LIMIT',
} as const;

/** Follows a file with a clock that the test moves. */
function follow(t: Test, path: string) {
  const clock = new FakeClock();
  const contents: string[] = [];
  const errors: string[] = [];
  const watcher = new FileWatcher({
    path,
    kind: KIND,
    limits: DEFAULT_FILE_LIMITS,
    clock,
    onContent: (bytes) => contents.push(Buffer.from(bytes).toString()),
    onError: (error) => errors.push(error.message),
    onRecovered: () => undefined,
  });
  watcher.start();
  t.teardown(() => watcher.close());
  /** Lets time pass, in steps that give the file system its turn, until something is found. */
  const pass = (found: () => boolean): Promise<void> =>
    until(() => {
      if (found()) return true;
      clock.advance(10);
      return false;
    });
  return { clock, contents, errors, watcher, pass };
}

t.test('a change that leaves size and times as they were, right after a read', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  await utimes(path, 1, 1);
  const { clock, contents, pass } = follow(t, path);
  await until(() => contents.length === 1);
  t.equal(clock.now(), 0, 'the first content needs no time');
  await writeFile(path, 'two');
  await utimes(path, 1, 1);
  t.equal((await stat(path)).size, 3);
  await pass(() => contents.at(-1) === 'two');
});

t.test('a missing file is reported once and looked for again and again', async (t) => {
  const path = join(t.testdir({}), 'state.yaml');
  const { contents, errors, pass, clock } = follow(t, path);
  await until(() => errors.length === 1);
  await pass(() => clock.now() >= 60_000);
  t.equal(errors.length, 1);
  await writeFile(path, 'one');
  await pass(() => contents.length === 1);
});

t.test('a file that is never quiet is read after a second all the same', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const { clock, contents } = follow(t, path);
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

t.test('no timer is left at the end', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const { contents, watcher, clock } = follow(t, path);
  await until(() => contents.length === 1 && clock.pending === 1);
  watcher.close();
  t.equal(clock.pending, 0);
});
