import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstatSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { writeAtomically } from '../../src/util/atomic-file.ts';
import { NO_LINKS } from '../support/links.ts';

const module = new URL('../../src/util/atomic-file.ts', import.meta.url).href;

t.test('pieces follow each other, also where they are larger than one write', async (t) => {
  const folder = t.testdir();
  const path = join(folder, 'state');
  const pieces = ['a'.repeat(400_000), 'é'.repeat(300_000), 'c'];
  await writeAtomically(path, pieces);
  t.ok(readFileSync(path, 'utf8') === pieces.join(''));
  t.strictSame(readdirSync(folder), ['state']);
});

t.test('a link that another user planted is not followed', { skip: NO_LINKS }, async (t) => {
  const folder = t.testdir({ victim: 'untouched' });
  const path = join(folder, 'state');
  symlinkSync(join(folder, 'victim'), `${path}.${process.pid}.tmp`);
  symlinkSync(join(folder, 'victim'), path);
  await writeAtomically(path, ['new']);
  t.equal(readFileSync(join(folder, 'victim'), 'utf8'), 'untouched');
  t.equal(readFileSync(path, 'utf8'), 'new');
  t.notOk(lstatSync(path).isSymbolicLink());
});

t.test(
  'a write that is taken in part only, as on a full disk, leaves the former content',
  { skip: process.platform === 'win32' && 'there are no such limits' },
  async (t) => {
    const folder = t.testdir();
    const path = join(folder, 'state');
    writeFileSync(path, 'as it was');
    const program = `
      process.on('SIGXFSZ', () => undefined);
      const { writeAtomically } = await import(${JSON.stringify(module)});
      await writeAtomically(${JSON.stringify(path)}, ['x'.repeat(100_000)]).catch((error) => {
        process.stdout.write(error.code);
      });`;
    // The size of a file is limited, where a disk would be full: the write up to there succeeds.
    const words = ['-c', 'ulimit -f 16 && exec "$0" "$@"', process.execPath];
    const child = spawn('sh', [...words, '--input-type=module', '--eval', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [said] = await Promise.all([text(child.stdout), once(child, 'close')]);
    t.equal(said, 'EFBIG');
    t.equal(readFileSync(path, 'utf8'), 'as it was');
    t.strictSame(readdirSync(folder), ['state'], 'and nothing beside it');
  },
);
