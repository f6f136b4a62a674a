/** hadolint about both image definitions. That bases are pinned by digest is tested in ../files.test.ts. */
import { join } from 'node:path';
import t from 'tap';
import { missing, run } from '../support/toolbox.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const skip = missing('hadolint');

for (const name of ['Dockerfile.linux', 'Dockerfile.windows']) {
  t.test(`hadolint finds nothing in ${name}`, { skip }, async (t) => {
    const { code, text } = await run('hadolint', [
      '--failure-threshold',
      'style',
      join(ROOT, name),
    ]);
    t.equal(code, 0, text);
    t.equal(text, '');
  });
}
