import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { blocksOf } from '../support/page-blocks.ts';
import { testPage } from '../support/run-page.ts';

const page = readFileSync(
  join(import.meta.dirname, '../../docs/reference/configuration.md'),
  'utf8',
);

testPage('docs/reference/configuration.md', () => {
  const example = blocksOf(page).find(({ language }) => language === 'yaml');
  return { files: { 'config.yaml': example?.text ?? '' }, apart: false };
});
