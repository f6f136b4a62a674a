/** What the pages tell people to type exists, and where they lead people is something. */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { parse } from '../../src/cli/parse.ts';

const root = join(import.meta.dirname, '..', '..');
const pages = globSync('{*.md,docs/*.md}', { cwd: root }).map((name) => ({
  name,
  text: readFileSync(join(root, name), 'utf8'),
}));

/** The lines of the pages' code blocks, fenced or indented. */
function* codeLines(text: string): Generator<string> {
  let fenced = false;
  for (const line of text.split('\n')) {
    if (line.startsWith('```')) fenced = !fenced;
    else if (fenced || line.startsWith('    ')) yield line.trim();
  }
}

t.test('every command line is understood', (t) => {
  let count = 0;
  for (const { name, text } of pages) {
    for (const line of codeLines(text)) {
      const [, args] =
        /^(?:Command line: +)?(?:kpng-userspace|npm start --) ([^#|<>\u2026]+)$/.exec(
          line.replace(/ +(?:#|\|) .*$/, ''),
        ) ?? [];
      if (args === undefined || args.startsWith('[')) continue;
      count += 1;
      const invocation = parse(args.trim().split(/ +/));
      const problem = invocation.kind === 'usage-error' ? invocation.error.message : '';
      t.equal(problem, '', `${name}: ${line}`);
    }
  }
  t.ok(count >= 10, `${count} found`);
  t.end();
});

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
