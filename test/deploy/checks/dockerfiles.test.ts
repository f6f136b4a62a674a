/** hadolint about both image definitions. That bases are pinned by digest is tested in ../files.test.ts. */
import { readFileSync } from 'node:fs';
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

t.test(
  'hadolint finds a base without a version, and packages without restraint',
  { skip },
  async (t) => {
    const good = readFileSync(join(ROOT, 'Dockerfile.linux'), 'utf8');
    const spoiled: Readonly<Record<string, string>> = {
      DL3006: good.replace('FROM ${DEBIAN_IMAGE} AS', 'FROM debian AS'),
      DL3007: good.replace('FROM ${DEBIAN_IMAGE} AS', 'FROM debian:latest AS'),
      DL3015: good.replace('--no-install-recommends libatomic1', 'libatomic1'),
    };
    for (const [rule, text] of Object.entries(spoiled)) {
      t.not(text, good);
      const found = await run('hadolint', ['-'], { input: text });
      t.not(found.code, 0, rule);
      t.match(found.text, rule);
    }
  },
);
