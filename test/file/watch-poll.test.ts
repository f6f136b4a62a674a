import { stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { FileWatcher } from '../../src/file/watch.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/until.ts';

/** Follows a file on a system that tells of no change; the test makes the events. */
function follow(t: Test, path: string) {
  const clock = new FakeClock();
  const contents: string[] = [];
  const errors: string[] = [];
  const watched: string[] = [];
  const open = new Set<string>();
  const events = new Set<() => void>();
  const watcher = new FileWatcher({
    path,
    limits: DEFAULT_FILE_LIMITS,
    clock,
    onContent: (bytes) => contents.push(Buffer.from(bytes).toString()),
    onError: (error) => errors.push(error.message),
    onRecovered: () => undefined,
    watchDirectory: (directory, onEvent) => {
      watched.push(directory.path);
      events.add(onEvent);
      open.add(directory.identity);
      return { close: () => open.delete(directory.identity) };
    },
  });
  watcher.start();
  t.teardown(() => watcher.close());
  /** Lets time pass, in steps that give the file system its turn, until something is found. */
  const pass = (found: () => boolean): Promise<void> =>
    until(() => {
      if (found()) return true;
      clock.advance(50);
      return false;
    });
  const event = (): void => {
    for (const onEvent of events) onEvent();
  };
  return { clock, contents, errors, watched, open, watcher, pass, event };
}

t.test('without events a change is found by looking every second', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const { clock, contents, pass } = follow(t, path);
  await until(() => contents.length === 1);
  t.equal(clock.now(), 0, 'the first content needs no time');
  await writeFile(path, 'three');
  await pass(() => contents.length === 2);
  t.ok(clock.now() >= 1000, `seen after ${clock.now()} ms`);
  t.strictSame(contents, ['one', 'three']);
});

t.test('a change that leaves size and times as they were, right after a read', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  await utimes(path, 1, 1);
  const { contents, pass } = follow(t, path);
  await until(() => contents.length === 1);
  await writeFile(path, 'two');
  await utimes(path, 1, 1);
  t.equal((await stat(path)).size, 3);
  await pass(() => contents.at(-1) === 'two');
});

t.test('the directories of the file are watched, and let go at the end', async (t) => {
  const dir = t.testdir({ 'state.yaml': 'one' });
  const { contents, watched, open, watcher, clock } = follow(t, join(dir, 'state.yaml'));
  await until(() => contents.length === 1);
  t.strictSame(watched, [dir]);
  t.equal(open.size, 1);
  watcher.close();
  t.equal(open.size, 0);
  t.equal(clock.pending, 0, 'no timer is left');
});

t.test('a missing file is told once and looked for again and again', async (t) => {
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
  const { clock, contents, event } = follow(t, path);
  await until(() => contents.length === 1);
  await writeFile(path, 'two');
  event();
  const start = clock.now();
  await until(() => {
    event();
    clock.advance(10);
    return contents.length === 2;
  });
  t.ok(clock.now() - start >= DEFAULT_FILE_LIMITS.maxSettleMs, `${clock.now() - start} ms`);
});

t.test('an event is answered after the settling time, long before the next look', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'one' }), 'state.yaml');
  const { clock, contents, event } = follow(t, path);
  await until(() => contents.length === 1);
  await writeFile(path, 'two');
  event();
  clock.advance(DEFAULT_FILE_LIMITS.settleMs);
  await until(() => contents.length === 2);
  t.equal(clock.now(), DEFAULT_FILE_LIMITS.settleMs);
});
