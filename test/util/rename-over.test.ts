import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { renameOver } from '../../src/util/rename-over.ts';

/** A system where the file is held for some attempts, and the waits between them. */
function system(platform: NodeJS.Platform, held: number, code = 'EPERM') {
  const waits: number[] = [];
  let attempts = 0;
  return {
    waits,
    options: {
      platform,
      rename: async (): Promise<void> => {
        attempts += 1;
        if (attempts <= held) throw Object.assign(new Error('held'), { code });
      },
      wait: async (ms: number): Promise<void> => void waits.push(ms),
    },
  };
}

t.test('on Windows a file that is held for a while is renamed over in the end', async (t) => {
  for (const code of ['EPERM', 'EACCES', 'EBUSY']) {
    const { options, waits } = system('win32', 5, code);
    await renameOver('a', 'b', options);
    t.strictSame(waits, [10, 20, 40, 80, 160], code);
  }
});

t.test('it does not wait for ever', async (t) => {
  const { options, waits } = system('win32', Infinity);
  await t.rejects(renameOver('a', 'b', options), { code: 'EPERM' });
  const all = waits.reduce((sum, ms) => sum + ms, 0);
  t.ok(all > 1000 && all < 3000, `${all} ms`);
});

t.test('what waiting does not cure is told at once', async (t) => {
  const absent = system('win32', 1, 'ENOENT');
  await t.rejects(renameOver('a', 'b', absent.options), { code: 'ENOENT' });
  const linux = system('linux', 1);
  await t.rejects(renameOver('a', 'b', linux.options), { code: 'EPERM' });
  t.strictSame([...absent.waits, ...linux.waits], []);
});

t.test('over a file that somebody reads, on this system', async (t) => {
  const dir = t.testdir({ old: 'old', new: 'new' });
  const descriptor = openSync(join(dir, 'old'), 'r');
  let open = true;
  const close = (): void => {
    if (open) closeSync(descriptor);
    open = false;
  };
  t.teardown(close);
  // Where the system refuses, the reader ends during the first wait.
  const wait = async (): Promise<void> => close();
  await renameOver(join(dir, 'new'), join(dir, 'old'), { wait });
  t.equal(readFileSync(join(dir, 'old'), 'utf8'), 'new');
  t.equal(open, process.platform !== 'win32', 'Windows refuses as long as it is open');
});
