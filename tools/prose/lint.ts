/**
 * `npm run lint` runs this: fails on words of words.ts in the documentation, and in comments and strings of the
 * source. Code, what programs print, and generated files and tables are left out.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { proseOfSource } from './source.ts';
import { WORDS } from './words.ts';

const ROOT = join(import.meta.dirname, '../..');
const PAGES = '{README,ARCHITECTURE,CONTRIBUTING,CHANGELOG}.md';
const SOURCES = '{src,bench,tools,examples,test}/**/*.ts';

/** The words of a page that have a better one, in the order of the page: line, word, and what to use. */
function findWords(page: string): string[] {
  return proseLines(page).flatMap((text, index) =>
    WORDS.flatMap(([pattern, use]) => {
      const found = pattern.exec(text)?.[0];
      return found === undefined ? [] : [`${index + 1}: "${found}"; use: ${use}`];
    }),
  );
}

/** The lines of a page, empty where they are code or generated, and without code in them. */
function proseLines(page: string): string[] {
  const blank = (text: string): string => text.replaceAll(/[^\n]/g, '');
  return page
    .replaceAll(/^( *)```[^]*?^\1```$/gm, blank)
    .replaceAll(/^<!-- begin (.*) -->$[^]*?^<!-- end \1 -->$/gm, blank)
    .replaceAll(/`[^`\n]*`/g, '`')
    .split('\n');
}

const pages = globSync([PAGES, '{docs,deploy,examples}/**/*.md', SOURCES], {
  cwd: ROOT,
  exclude: ['**/generated/**', '**/node_modules/**'],
}).sort();
const lines = pages.flatMap((page) => {
  const content = readFileSync(join(ROOT, page), 'utf8');
  const found = findWords(page.endsWith('.ts') ? proseOfSource(content) : content);
  return found.map((word) => `${page}:${word}\n`);
});
process.stdout.write(lines.join(''));
if (lines.length > 0) process.exitCode = 1;
