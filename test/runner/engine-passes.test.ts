import { existsSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { enginePasses, hasLinuxEngine } from './engine-passes.ts';

const ROOT = join(import.meta.dirname, '../..');

t.test('every file of every pass is there', (t) => {
  for (const { engine, files } of enginePasses([])) {
    t.ok(files.length > 5, engine);
    for (const file of files) if (!existsSync(join(ROOT, file))) t.fail(`${file} is missing`);
  }
  t.end();
});

t.test('only what was asked for runs again', (t) => {
  const files = (...paths: string[]) => enginePasses(paths).map(({ files }) => files.length);
  t.same(files('test/client'), []);
  t.same(files('test/proxysocket/udp/limits.test.ts'), [1]);
  t.equal(enginePasses(['test/proxysocket/udp/'])[0]?.engine, 'inline');
  t.same(files('test'), files());
  t.same(files('test/proxysocket/tc'), [], 'part of a name is no folder');
  t.end();
});

t.test('where the linux engine can be tested', (t) => {
  t.equal(hasLinuxEngine('linux', 'v26.10.0'), true);
  t.equal(hasLinuxEngine('linux', 'v24.1.0'), false);
  t.equal(hasLinuxEngine('win32', 'v26.10.0'), false);
  t.end();
});
