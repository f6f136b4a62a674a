import t from 'tap';
import { appendFile, cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { drift } from '../../../src/api/proto/generate.ts';

const GENERATED = join(import.meta.dirname, '../../../src/api/generated');

t.test('the generated files are what the .proto files say', async (t) => {
  t.strictSame(await drift(), [], 'run "npm run generate"');
});

t.test('a difference is found and shown', async (t) => {
  const copy = join(t.testdir(), 'generated');
  await cp(GENERATED, copy, { recursive: true });
  const local = join(copy, 'localv1', 'api.ts');
  const text = await readFile(local, 'utf8');
  await writeFile(local, text.replace('nodeName: string;', 'nodeName: number;'));
  await rm(join(copy, 'globalv1'), { recursive: true });
  await writeFile(join(copy, 'old.ts'), '');
  const [missing, changed, extra, ...rest] = await drift(copy);
  t.match(missing, /globalv1.api\.ts: is missing/);
  t.match(changed, /localv1.api\.ts:\d+: has "nodeName: number;", would be "nodeName: string;"/);
  t.match(extra, /old\.ts: would not be generated/);
  t.strictSame(rest, []);
});

t.test('a line too many is a difference', async (t) => {
  const copy = join(t.testdir(), 'generated');
  await cp(GENERATED, copy, { recursive: true });
  await appendFile(join(copy, 'localv1', 'api.ts'), '// more\n');
  const [changed] = await drift(copy);
  t.match(changed, /has "\/\/ more", would be/);
});
