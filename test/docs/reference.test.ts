/** The commands of the reference pages. Those that take long have files of their own: status, kpng. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { blocksOf } from '../support/markdown.ts';
import { testPage } from '../support/run-page.ts';

const page = readFileSync(
  join(import.meta.dirname, '../../docs/reference/command-line.md'),
  'utf8',
);

testPage('docs/reference/command-line.md', () => {
  const example = blocksOf(page).find(({ language }) => language === 'yaml');
  return { files: { 'config.yaml': example?.text ?? '' }, apart: false };
});
testPage('docs/reference/command-line.md', () => ({ mark: 'run apart' }));
testPage('docs/reference/events.md');
testPage('docs/reference/limits.md');
testPage('docs/reference/metrics.md');
testPage('docs/reference/state-file.md');
// What writes rules and addresses is run by test/system/cli.test.ts.
testPage('docs/reference/portals.md');
