/** What the pages name exists, and where they lead people is something. What they show: test/docs. */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';

const root = join(import.meta.dirname, '..', '..');
const pages = globSync('{*.md,docs/**/*.md}', { cwd: root }).map((name) => ({
  name,
  text: readFileSync(join(root, name), 'utf8'),
}));

t.test('every npm script is one', (t) => {
  const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  for (const { name, text } of pages) {
    for (const [, script = ''] of text.matchAll(/\bnpm run ([\w:]+)/g)) {
      t.ok(script in scripts, `${name}: npm run ${script}`);
    }
  }
  t.end();
});

t.test('every link within the repository leads somewhere', (t) => {
  for (const { name, text } of pages) {
    for (const [, target = '', anchor] of text.matchAll(/\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)/g)) {
      const file = target === '' ? name : join(dirname(name), target);
      t.ok(existsSync(join(root, file)), `${name}: ${target}`);
      if (anchor === undefined) continue;
      const headings = readFileSync(join(root, file), 'utf8').match(/^#+ .*$/gm) ?? [];
      t.ok(
        headings.some((heading) => anchorOf(heading) === anchor),
        `${name}: #${anchor}`,
      );
    }
  }
  t.end();
});

/** As GitHub makes it. */
function anchorOf(heading: string): string {
  return heading
    .replace(/^#+ /, '')
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}
