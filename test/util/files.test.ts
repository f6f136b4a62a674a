import { spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { KpngError } from '../../src/errors.ts';
import { STATE_FILE } from '../../src/file/source.ts';
import { writeAtomically, renameOver } from '../../src/util/atomic-file.ts';
import { readContent, type FileContent } from '../../src/util/read-content.ts';
import { NO_LINKS } from '../support/short-dir.ts';

const module = new URL('../../src/util/atomic-file.ts', import.meta.url).href;

t.test('large pieces replace a link, not what it points to', async (t) => {
  const folder = t.testdir({ victim: 'untouched' });
  const path = join(folder, 'state');
  if (NO_LINKS === false) symlinkSync(join(folder, 'victim'), path);
  const pieces = ['a'.repeat(400_000), 'é'.repeat(300_000), 'c'];
  await writeAtomically(path, pieces);
  t.ok(readFileSync(path, 'utf8') === pieces.join(''));
  t.equal(readFileSync(join(folder, 'victim'), 'utf8'), 'untouched');
  t.strictSame(readdirSync(folder), ['state', 'victim']);
});

t.test(
  'a write that is taken in part only, as on a full disk, leaves the previous content',
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

t.test('on Windows a file that is held is renamed over, for two seconds', async (t) => {
  for (const [platform, code, held, waits] of [
    ...['EPERM', 'EACCES', 'EBUSY'].map(
      (code) => ['win32', code, 5, [10, 20, 40, 80, 160]] as const,
    ),
    ['win32', 'EPERM', Infinity, [10, 20, 40, 80, 160, 250, 250, 250, 250, 250, 250]],
    ['win32', 'ENOENT', Infinity, []],
    ['linux', 'EPERM', Infinity, []],
  ] as const) {
    const waited: number[] = [];
    let attempts = 0;
    const rename = async (): Promise<void> => {
      attempts += 1;
      if (attempts <= held) throw Object.assign(new Error('held'), { code });
    };
    const wait = async (ms: number): Promise<void> => void waited.push(ms);
    const renamed = renameOver('a', 'b', { platform, rename, wait });
    if (held === Infinity) await t.rejects(renamed, { code });
    else await renamed;
    t.strictSame(waited, waits, code);
  }
});

const LIMIT = 8 * 1024 * 1024;

function content(result: FileContent | KpngError): FileContent {
  if (result instanceof KpngError) throw result;
  return result;
}

t.test('contents of any size are read whole, and can be given to a thread', async (t) => {
  const path = join(t.testdir({}), 'state.yaml');
  const mebibyte = 1024 * 1024;
  for (const size of [0, 1, 1000, mebibyte - 1, mebibyte, mebibyte + 1, 3 * mebibyte + 7]) {
    const written = Buffer.alloc(size, 'a line of text\n');
    await writeFile(path, written);
    const { bytes, digest } = content(await readContent(path, LIMIT, STATE_FILE));
    t.equal(bytes.length, size);
    t.ok(written.equals(bytes), `${size} bytes`);
    t.equal(digest, hash('sha256', written));
    t.equal(structuredClone(bytes, { transfer: [bytes.buffer] }).length, size);
    t.equal(bytes.length, 0, 'it was handed over, not copied');
  }
});

t.test('a file that is too large is not read', async (t) => {
  const path = join(t.testdir({ 'state.yaml': 'x'.repeat(1001) }), 'state.yaml');
  t.match(await readContent(path, 1000, STATE_FILE), {
    code: 'KPNG_STATE_FILE_LIMIT',
    message: /is larger than/,
  });
  t.equal(content(await readContent(path, 1001, STATE_FILE)).bytes.length, 1001);
});
