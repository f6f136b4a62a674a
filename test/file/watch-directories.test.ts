import { symlink } from 'node:fs/promises';
import { join, relative } from 'node:path';
import t from 'tap';
import { directoriesOf, watchDirectory } from '../../src/file/watch-directories.ts';
import { NO_LINKS } from '../support/links.ts';

/** Directories with their names, below `dir`. */
async function found(dir: string, path: string): Promise<Record<string, string[]>> {
  const entries = (await directoriesOf(path)).map(({ path, names }) => {
    return [relative(dir, path) || '.', [...names].slice(1).sort()] as const;
  });
  return Object.fromEntries(entries);
}

t.test('a plain file: its directory', async (t) => {
  const dir = t.testdir({ a: { file: '' } });
  t.strictSame(await found(dir, join(dir, 'a', 'file')), { a: ['file'] });
});

t.test(
  'a ConfigMap volume: the volume and the directory with the data',
  { skip: NO_LINKS },
  async (t) => {
    const dir = t.testdir({ vol: { '..1': { file: '' } } });
    await symlink('..1', join(dir, 'vol', '..data'));
    await symlink('..data/file', join(dir, 'vol', 'file'));
    t.strictSame(await found(dir, join(dir, 'vol', 'file')), {
      vol: ['..data', 'file'],
      'vol/..1': ['file'],
    });
  },
);

t.test('links upwards, absolute links, links to directories', { skip: NO_LINKS }, async (t) => {
  const dir = t.testdir({ a: { b: {} }, c: { file: '' } });
  await symlink('../../c', join(dir, 'a', 'b', 'up'));
  await symlink(join(dir, 'a', 'b', 'up', 'file'), join(dir, 'start'));
  t.strictSame(await found(dir, join(dir, 'start')), {
    '.': ['start'],
    'a/b': ['up'],
    c: ['file'],
  });
});

t.test('something is missing: where it would appear', async (t) => {
  const dir = t.testdir({ a: {} });
  t.strictSame(await found(dir, join(dir, 'a', 'b', 'file')), { a: ['b'] });
});

t.test('what a link leads to is missing', { skip: NO_LINKS }, async (t) => {
  const dir = t.testdir({});
  await symlink('nowhere', join(dir, 'broken'));
  t.strictSame(await found(dir, join(dir, 'broken')), { '.': ['broken', 'nowhere'] });
});

t.test('a circle of links ends', { skip: NO_LINKS }, async (t) => {
  const dir = t.testdir({});
  await symlink('two', join(dir, 'one'));
  await symlink('one', join(dir, 'two'));
  t.strictSame(await found(dir, join(dir, 'one')), { '.': ['one', 'two'] });
});

t.test('another directory in the same place has another identity', async (t) => {
  const dir = t.testdir({ a: { file: '' }, b: { file: '' } });
  const [a] = await directoriesOf(join(dir, 'a', 'file'));
  const [b] = await directoriesOf(join(dir, 'b', 'file'));
  t.not(a?.identity, b?.identity);
  const [again] = await directoriesOf(join(dir, 'a', 'file'));
  t.equal(again?.identity, a?.identity);
});

t.test('watching what cannot be watched fails quietly', async (t) => {
  const directory = { path: '/no/such/directory', identity: '', names: new Set<string>() };
  const watcher = watchDirectory(directory, () => t.fail('no event can come'));
  watcher.close();
});
