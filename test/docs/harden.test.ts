import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';

const ROOT = join(import.meta.dirname, '../..');

t.test('every parser of outside input has a fuzz target, which the page names', (t) => {
  const page = readFileSync(join(ROOT, 'docs/how-to/harden.md'), 'utf8');
  const files = new Set(page.match(/test\/[\w/-]+\.test\.ts/g));
  t.ok(files.size > 5, [...files].join(' '));
  for (const file of files) {
    t.ok(existsSync(join(ROOT, file)), file);
    const text = existsSync(join(ROOT, file)) ? readFileSync(join(ROOT, file), 'utf8') : '';
    t.match(text, /from 'fast-check'/, `${file} tries what nobody has thought of`);
  }
  t.end();
});
