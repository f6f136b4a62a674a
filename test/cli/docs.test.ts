import { readFileSync, writeFileSync, existsSync, globSync } from 'node:fs';
import { join, dirname } from 'node:path';
import { Ajv } from 'ajv';
import { format, resolveConfig as prettierConfig } from 'prettier';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { parseConfig } from '../../src/cli/config-file.ts';
import { helpText } from '../../src/cli/help.ts';
import { configurableFlags, parse } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import type { Topic } from '../../src/cli/topic.ts';
import { fieldName } from '../../src/config/field.ts';
import { resolveConfig } from '../../src/config/resolve.ts';
import { ERROR_CODES } from '../../src/errors.ts';
import { configSchema } from '../../tools/docs/config-schema.ts';
import { fillPage } from '../../tools/docs/fill.ts';
import { cliParts } from '../../tools/docs/pages.ts';
import { listItems } from '../support/markdown.ts';

const root = join(import.meta.dirname, '..', '..');
const docs = join(root, 'docs');
const OWN = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';
const SCHEMA = join(root, 'schema', 'configuration.schema.json');

function page(name: string): string {
  return readFileSync(join(docs, name), 'utf8');
}

t.test('pages and schema are what the flag tables say', async (t) => {
  const schema = await format(JSON.stringify(configSchema(), null, 2), {
    ...(await prettierConfig(SCHEMA)),
    parser: 'json',
  });
  const made: [string, string][] = [
    [
      join(docs, 'reference/command-line.md'),
      fillPage(page('reference/command-line.md'), cliParts(REGISTRY)),
    ],
    [SCHEMA, schema],
  ];
  for (const [path, text] of made) {
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(path, text);
    t.equal(readFileSync(path, 'utf8'), text, 'UPDATE_DOCS=1 npx tap test/cli/docs.test.ts');
  }
});

t.test('every command line of a help text is understood', (t) => {
  const commands = [...REGISTRY.sources, ...REGISTRY.sinks, ...REGISTRY.others];
  const lines = commands.flatMap(({ examples }) => Object.keys(examples));
  const config = parseConfig('c.yaml', `${OWN}command: file to-json\n`);
  t.ok(lines.length >= 20);
  for (const line of lines) {
    const [words = ''] = line.split(/ [|>] /);
    const invocation = parse(words.split(' '), {}, config);
    t.match(invocation.kind, /^(?:run|other)$/, line);
  }
  t.end();
});

t.test('help fits a terminal, and teaches with examples', (t) => {
  const topics: Topic[] = [{ kind: 'nothing' }];
  for (const command of REGISTRY.others) topics.push({ kind: 'other', command, operands: [] });
  for (const source of REGISTRY.sources) {
    topics.push({ kind: 'source', source });
    for (const sink of REGISTRY.sinks) topics.push({ kind: 'command', source, sink });
  }
  for (const text of topics.map((topic) => helpText(topic))) {
    const lines = text.split('\n');
    const [first = ''] = lines;
    for (const line of lines) t.ok(line.length <= 110, `${first}: ${line}`);
    t.match(text, /\nUsage:\n {2}kpng-userspace /, first);
    t.match(text, /\nExamples:\n {2}# .+\n {2}kpng-userspace /, first);
    t.ok(text.endsWith('\n') && !text.endsWith('\n\n'));
  }
  t.end();
});

t.test(
  'docs/reference/errors.md has every code, says what it means and whether it is retried',
  (t) => {
    const documented = listItems(page('reference/errors.md')).map(({ names: [code], text }) => {
      const [, mark, meaning] = /^(?: \((retried)\): )?(.*)\n {2}\S/.exec(text) ?? [];
      return { code, meaning, retried: mark !== undefined };
    });
    t.same(
      documented,
      Object.entries(ERROR_CODES).map(([code, { summary, retried }]) => {
        return { code, meaning: summary, retried };
      }),
      'in the order of src/errors.ts',
    );
    t.end();
  },
);

/** Names and links in the pages exist. For what they show, see test/docs. */

const pages = globSync('{*.md,docs/**/*.md}', { cwd: root }).map((name) => ({
  name,
  text: readFileSync(join(root, name), 'utf8'),
}));

t.test('every link within the repository has a target', (t) => {
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

const FIELDS = configurableFlags();

function valid(text: string): boolean {
  const validate = new Ajv({ allowUnionTypes: true }).compile(
    JSON.parse(readFileSync(SCHEMA, 'utf8')) as object,
  );
  return [...parseAllDocuments(text)].every((document) => validate(document.toJS()));
}

t.test('the example of the page is valid, by the program and by the schema', async (t) => {
  const [, example = ''] = /```yaml\n(.*?)```/s.exec(page('reference/command-line.md')) ?? [];
  const resolved = resolveConfig('example', example, FIELDS);
  t.match(resolved, { ok: true, config: { warnings: [] } });
  t.ok(valid(example));
});

t.test('the schema takes every default, and refuses what the program refuses', async (t) => {
  for (const [flag, spec] of configurableFlags()) {
    const field = fieldName(flag);
    const text: unknown = spec.kind.format(spec.default);
    if (typeof text !== 'string' || text === '') continue;
    const { type } = spec.kind.schema;
    const plain = type === 'integer' || type === 'boolean' ? text : JSON.stringify(text);
    t.ok(valid(`${OWN}${field}: ${plain}\n`), `${field}: ${plain}`);
    t.ok(resolveConfig('x', `${OWN}${field}: ${plain}\n`, FIELDS).ok, field);
  }
  for (const line of [
    'drainTimeout: 5',
    'v: 11',
    'nope: 1',
    'portal: x',
    'cleanupOnExit: "true"',
  ]) {
    t.notOk(valid(`${OWN}${line}\n`), `schema: ${line}`);
    t.notOk(resolveConfig('x', `${OWN}${line}\n`, FIELDS).ok, `program: ${line}`);
  }
});
