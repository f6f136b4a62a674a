import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import t from 'tap';
import { StateParser } from '../../src/file/parse.ts';
import { formatProblems } from '../../src/file/problem.ts';
import { SCHEMA_URL, validateServiceItem } from '../../src/file/schema.ts';
import { stateOf, warningsOf } from '../support/file-rig.ts';
import { listItems } from '../support/markdown.ts';

const root = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(root, 'docs/reference/state-file.md'), 'utf8');

interface Part {
  readonly title?: string;
  readonly description?: string;
  readonly type?: unknown;
  readonly enum?: readonly unknown[];
  readonly additionalProperties?: unknown;
  readonly properties?: Record<string, Part>;
  readonly items?: Part;
}
const schema = JSON.parse(readFileSync(SCHEMA_URL, 'utf8')) as Part & {
  definitions: Record<string, Part>;
};

t.test('keys have descriptions, values have names, other keys are refused', async (t) => {
  // Which editors know best.
  t.match(schema, { $schema: 'http://json-schema.org/draft-07/schema#' });
  t.equal(new Ajv({ strict: false }).validateSchema(schema), true);
  const visit = (path: string, part: Part): void => {
    if (part.type !== undefined || part.enum !== undefined) t.ok(part.title, `${path} has a title`);
    if (part.properties) t.equal(part.additionalProperties, false, `${path} is closed`);
    for (const [key, value] of Object.entries(part.properties ?? {})) {
      if (!path.endsWith('scopes')) t.ok(value.description, `${path}.${key} has a description`);
      visit(`${path}.${key}`, value);
    }
    if (part.items) visit(`${path}[]`, part.items);
  };
  for (const [name, part] of Object.entries({ file: schema, ...schema.definitions })) {
    visit(name, part);
  }
});

/** Whether a value is accepted in the place of a list in `ips.clusterips`, or of source ranges. */
function accepts(key: 'v4' | 'v6' | 'cidr', text: string): boolean {
  const service =
    key === 'cidr'
      ? { name: 'x', ipfilters: [{ sourceranges: [text] }] }
      : { name: 'x', ips: { clusterips: { [key]: [text] } } };
  return validateServiceItem({ service }).length === 0;
}

t.test('addresses and networks are strict', async (t) => {
  const good = {
    v4: '0.0.0.0,255.255.255.255',
    v6: '::,FD00::A,2001:db8:0:0:0:0:0:1,64:ff9b::192.0.2.1',
    cidr: '0.0.0.0/0,10.0.0.1/8,10.0.0.1/32,::/0,::1/128',
  };
  const bad = {
    v4: ',1,0x7f.0.0.1,01.2.3.4,1.2.3.4 , 1.2.3.4,1.2.3.4/32,1.2.3,::1',
    v6: ',:::,1.2.3.4,fe80::1%1,::ffff:1.2.3.4,::FFFF:102:304,[::1],1:2:3:4:5:6:7',
    cidr:
      ',/,10.0.0.0/,10.0.0.0/33,10.0.0.0/-1,10.0.0.0/08,10.0.0.0/8/8,10.0.0.0/ 8,10/8,::/129,' +
      '::ffff:1.2.3.4/96,fe80::%1/64,10.0.0.0/1e1',
  };
  for (const key of ['v4', 'v6', 'cidr'] as const) {
    for (const text of good[key].split(',')) t.ok(accepts(key, text), `${key} ${text}`);
    for (const text of bad[key].split(',')) t.notOk(accepts(key, text), `${key} '${text}'`);
  }
});

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
    const { properties = {} } =
      name === 'file' ? schema : (schema.definitions[name] ?? { properties: {} });
    t.strictSame(keys.sort(), Object.keys(properties).sort(), name);
  }
  // These two are explained in the row of the key that holds them.
  const inline = new Set(['topology', 'sessionAffinity']);
  for (const [name, definition] of Object.entries(schema.definitions)) {
    if ('properties' in definition && !inline.has(name)) t.ok(documented.has(name), name);
  }
});
