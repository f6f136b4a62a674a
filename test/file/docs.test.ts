import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { StateParser } from '../../src/file/parse.ts';
import { formatProblems } from '../../src/file/problem.ts';
import { SCHEMA_URL } from '../../src/file/schema.ts';
import { listItems } from '../support/markdown.ts';
import { followFile, lines, stateOf, warningsOf } from '../support/file-rig.ts';

const root = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(root, 'docs/reference/state-file.md'), 'utf8');

interface Schema {
  readonly properties: Record<string, unknown>;
  readonly definitions: Record<string, { readonly properties: Record<string, unknown> }>;
}
const schema = JSON.parse(readFileSync(SCHEMA_URL, 'utf8')) as Schema;

t.test('every example is a valid state file and names the schema', async (t) => {
  const files = globSync('examples/state-file/*.yaml', { cwd: root });
  t.ok(files.length >= 3);
  for (const file of files) {
    const text = readFileSync(join(root, file), 'utf8');
    t.match(
      text,
      /^# yaml-language-server: \$schema=\.\.\/\.\.\/schema\/state-file\.schema\.json\n/,
    );
    t.ok(stateOf(text).services.size > 0, file);
    t.strictSame(warningsOf(text), [], file);
  }
});

t.test('the example on the page is the file that it names', async (t) => {
  const [, file = '', text] = /<!-- example: (\S+) -->\n```yaml\n(.*?)```\n/s.exec(page) ?? [];
  t.equal(text, readFileSync(join(root, file), 'utf8'));
});

t.test('the errors on the page are the real ones', async (t) => {
  const refused = [
    ...page.matchAll(
      /<!-- refused -->\n```yaml\n(.*?)```\n\n<!-- [^\n]* -->\n```text\n(.*?)```\n/gs,
    ),
  ];
  t.equal(refused.length, page.split('<!-- refused -->').length - 1);
  for (const [, text = '', expected] of refused) {
    const result = new StateParser().parse(text);
    t.equal(result.ok ? '' : `${formatProblems('state.yaml', result.errors)}\n`, expected);
  }
});

t.test('the lists contain exactly the keys of the schema', async (t) => {
  const lists = [...page.matchAll(/<!-- keys: (\w+) -->\n((?:\* .*\n)+)/g)];
  const documented = new Set(lists.map(([, name = '']) => name));
  for (const [, name = '', rows = ''] of lists) {
    const keys = listItems(rows).flatMap(({ names }) => names);
    const { properties } =
      name === 'file' ? schema : (schema.definitions[name] ?? { properties: {} });
    t.strictSame(keys.sort(), Object.keys(properties).sort(), name);
  }
  // These two are explained in the row of the key that holds them.
  const inline = new Set(['topology', 'sessionAffinity']);
  for (const [name, definition] of Object.entries(schema.definitions)) {
    if ('properties' in definition && !inline.has(name)) t.ok(documented.has(name), name);
  }
});

t.test('V22 (kept, different): the hint of one endpoint alone takes nothing away', async (t) => {
  const text = lines(
    'nodes: [{name: edge-1, topology: {node: edge-1, zone: north}}]',
    'services:',
    '- service: {namespace: bakery, name: oven, externaltraffictolocal: true}',
    '  endpoints:',
    '  - {podname: oven-0, endpoint: {ips: {v4: [10.244.1.11]}}, topology: {node: edge-1}}',
    '  - endpoint: {ips: {v4: [10.244.2.22]}}',
    '    topology: {node: edge-2, zone: south}',
    '    hints: {zones: [south]}',
  );
  const { view } = await followFile(t, text, { nodeName: 'edge-1' }).sink.next();
  const endpoints = [...(view.get('bakery/oven')?.endpoints.values() ?? [])];
  t.match(
    endpoints.sort((a) => (a.local ? -1 : 1)),
    [
      { local: true, scopes: { internal: true, external: true } },
      { local: false, scopes: { internal: true, external: false } },
    ],
  );
});
